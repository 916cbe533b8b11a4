"""`dsv41c export-triton`: a model repository of the Triton Inference Server for an artifact."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer


def export_triton_command(
    artifact: Annotated[Path, typer.Argument(metavar="ART", help="Artifact directory.")],
    repository: Annotated[Path, typer.Argument(metavar="REPO", help="Model repository; made where there is none.")],
    name: Annotated[str, typer.Option(help="Of the model; those for text begin with it.")] = "dsv41c",
    link: Annotated[bool, typer.Option("--link", help="Point to ART instead of copying it.")] = False,
    weights: Annotated[Path | None, typer.Option(metavar="DIR", help="Checkpoint of an artifact that maps its "
                                                 "weights.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Write what a Triton server needs to serve an artifact: token ids, and text where it has a tokenizer."""
    from dsv41c.runtime.library import PUBLIC, installed_file
    from dsv41c.tools.cli.triton_repository import Export

    _check_name(name)
    backend = installed_file("lib/triton/dsv41c/libtriton_dsv41c.so").parent
    installed_file(f"lib/{PUBLIC}")
    models = Export(artifact, repository, name, link, weights).write()
    if as_json:
        print(json.dumps({"schema_version": 1, "repository": str(repository), "models": models,
                          "backend_directory": str(backend.parent)}))
        return
    print(f"models    {' '.join(models)}\nbackend   {backend} (link or copy it into the server's backend directory)")


def _check_name(name: str) -> None:
    from dsv41c.runtime.plan.errors import Dsv41cError

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise Dsv41cError("DSV41C-E0901", "--name", found=repr(name), do="choose another name",
                          needed="letters, digits, '.', '_' and '-', beginning with a letter or digit")
