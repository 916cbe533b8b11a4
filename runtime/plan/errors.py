"""The one typed error of the project: a code, what was found, what is needed and what to do about it."""

from __future__ import annotations

from typing import NamedTuple


class CodeEntry(NamedTuple):
    """What a code means and the exit code of a command that ends with it."""

    title: str
    exit_code: int


USAGE, UNSUPPORTED, MISMATCH, ARTIFACT, MEMORY, INTERNAL = 2, 3, 4, 5, 6, 70

# The digits after E name the room (01 checkpoint, 02 capture, 03 passes and ops, 04 graphs, 05 plan,
# 06 artifact, 07 runtime load, 08 runtime execute, 09 usage, 10 engine), then count within it.
CODES: dict[str, CodeEntry] = {
    "DSV41C-E0101": CodeEntry("checkpoint file missing", UNSUPPORTED),
    "DSV41C-E0102": CodeEntry("tensor missing", UNSUPPORTED),
    "DSV41C-E0103": CodeEntry("tensor shape or dtype wrong", UNSUPPORTED),
    "DSV41C-E0104": CodeEntry("unsupported config value", UNSUPPORTED),
    "DSV41C-E0105": CodeEntry("bad safetensors file", UNSUPPORTED),
    "DSV41C-E0106": CodeEntry("output exists", USAGE),
    "DSV41C-E0107": CodeEntry("recite text cannot be built", USAGE),
    "DSV41C-E0108": CodeEntry("surplus tensors", UNSUPPORTED),
    "DSV41C-E0109": CodeEntry("bad config json", UNSUPPORTED),
    "DSV41C-E0201": CodeEntry("capture failed", INTERNAL),
    "DSV41C-E0202": CodeEntry("undeclared op in captured program", INTERNAL),
    "DSV41C-E0203": CodeEntry("value crosses a boundary without take_rows", INTERNAL),
    "DSV41C-E0301": CodeEntry("bad op declaration", INTERNAL),
    "DSV41C-E0302": CodeEntry("native kernel failed", INTERNAL),
    "DSV41C-E0303": CodeEntry("native library missing", UNSUPPORTED),
    "DSV41C-E0304": CodeEntry("passes in a wrong order", USAGE),
    "DSV41C-E0305": CodeEntry("pass broke the program", INTERNAL),
    "DSV41C-E0306": CodeEntry("bad program text", USAGE),
    "DSV41C-E0401": CodeEntry("lifetimes overlap", INTERNAL),
    "DSV41C-E0402": CodeEntry("bad buckets", USAGE),
    "DSV41C-E0403": CodeEntry("cut does not cover a method", INTERNAL),
    "DSV41C-E0405": CodeEntry("memory budget exceeded", MEMORY),
    "DSV41C-E0501": CodeEntry("plan malformed", ARTIFACT),
    "DSV41C-E0502": CodeEntry("plan verification failed", ARTIFACT),
    "DSV41C-E0503": CodeEntry("unknown feature", ARTIFACT),
    "DSV41C-E0504": CodeEntry("expression error", ARTIFACT),
    "DSV41C-E0601": CodeEntry("artifact file missing", ARTIFACT),
    "DSV41C-E0602": CodeEntry("digest mismatch", ARTIFACT),
    "DSV41C-E0603": CodeEntry("artifact is plan-only", ARTIFACT),
    "DSV41C-E0604": CodeEntry("format version unknown", ARTIFACT),
    "DSV41C-E0605": CodeEntry("output exists", USAGE),
    "DSV41C-E0606": CodeEntry("write failed", MEMORY),
    "DSV41C-E0607": CodeEntry("weight is not a number", ARTIFACT),
    "DSV41C-E0701": CodeEntry("reservation failed", MEMORY),
    "DSV41C-E0702": CodeEntry("provider missing", UNSUPPORTED),
    "DSV41C-E0703": CodeEntry("load failed", ARTIFACT),
    "DSV41C-E0704": CodeEntry("no CUDA driver", UNSUPPORTED),
    "DSV41C-E0705": CodeEntry("no such CUDA device", UNSUPPORTED),
    "DSV41C-E0706": CodeEntry("artifact for another architecture", ARTIFACT),
    "DSV41C-E0707": CodeEntry("memory budget exceeded at load", MEMORY),
    "DSV41C-E0801": CodeEntry("bad step input", USAGE),
    "DSV41C-E0802": CodeEntry("step failed", INTERNAL),
    "DSV41C-E0803": CodeEntry("self-test gives other tokens", MISMATCH),
    "DSV41C-E0804": CodeEntry("launch differs from its reference", MISMATCH),
    "DSV41C-E0805": CodeEntry("a check failed", INTERNAL),
    "DSV41C-E0901": CodeEntry("bad option", USAGE),
    "DSV41C-E0902": CodeEntry("bad prompt", USAGE),
    "DSV41C-E1001": CodeEntry("does not fit into pages and slots", MEMORY),
    "DSV41C-E1002": CodeEntry("queue full", MEMORY),
    "DSV41C-E1003": CodeEntry("request cancelled", USAGE),
    "DSV41C-E1004": CodeEntry("time limit passed", USAGE),
    "DSV41C-E1005": CodeEntry("engine closed", USAGE),
    "DSV41C-E1006": CodeEntry("logits are not finite", ARTIFACT),
    "DSV41C-E1007": CodeEntry("session in use by another thread", USAGE),
    "DSV41C-E1008": CodeEntry("call inside a callback", USAGE),
    "DSV41C-E1009": CodeEntry("field or flag that the library does not know", UNSUPPORTED),
}


class Dsv41cError(Exception):
    """An error with a known code; an unknown code is a bug and raises KeyError at construction."""

    def __init__(
        self, code: str, subject: str, *, found: str, needed: str, do: str, where: str | None = None
    ) -> None:
        self.entry = CODES[code]
        self.code = code
        self.subject = subject
        self.where = where
        self.found = found
        self.needed = needed
        self.do = do
        super().__init__(code, subject)

    @property
    def exit_code(self) -> int:
        return self.entry.exit_code

    def __str__(self) -> str:
        fields = [("where", self.where), ("found", self.found), ("needed", self.needed), ("do", self.do)]
        lines = [f"  {name:<7} {text}" for name, text in fields if text is not None]
        return "\n".join([f"{self.code} {self.subject}", *lines])

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by their positional arguments; keyword-only fields need a rebuild function.
        return _rebuild, (self.code, self.subject, self.found, self.needed, self.do, self.where)

    def to_json(self) -> dict[str, str | None]:
        """The fields as the C interface reports them."""
        return {
            "code": self.code, "subject": self.subject, "where": self.where,
            "found": self.found, "needed": self.needed, "do": self.do,
        }

    @classmethod
    def from_json(cls, fields: dict[str, str | None]) -> Dsv41cError:
        """The error that the C++ side reported as JSON."""
        text = {name: value or "" for name, value in fields.items()}
        return cls(
            text["code"], text["subject"], where=fields.get("where"),
            found=text["found"], needed=text["needed"], do=text["do"],
        )


def _rebuild(code: str, subject: str, found: str, needed: str, do: str, where: str | None) -> Dsv41cError:
    return Dsv41cError(code, subject, found=found, needed=needed, do=do, where=where)
