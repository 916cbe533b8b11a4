#!/bin/bash
# The tests of pages need Chromium: installs it as root where it is missing, or says what to do.
set -euo pipefail
command -v chromium > /dev/null && exit 0
echo "the tests of pages need chromium; trying: apt-get update && apt-get install -y chromium" >&2
{ [ "$(id -u)" = 0 ] && apt-get update -qq > /dev/null && apt-get install -y -qq chromium > /dev/null; } || {
  echo "chromium is missing and cannot be installed here: install it as root (Debian: apt-get install chromium)" >&2
  exit 2
}
