"""What a model's configuration becomes, and what is refused with which words."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from tests.triton_server.server import Server, running
from tests.triton_server.streams import GrpcStream


def test_one_line_of_config_is_enough(counting: Server) -> None:
    model = counting.add("one_line")
    config = counting.get(f"v2/models/{model}/config").body
    assert config["max_batch_size"] == 0
    assert config["model_transaction_policy"] == {"decoupled": True}
    assert [group["kind"] for group in config["instance_group"]] == ["KIND_MODEL"]
    told = counting.get(f"v2/models/{model}").body
    assert {t["name"]: (t["datatype"], t["shape"]) for t in told["inputs"]} == {
        "input_ids": ("INT64", [-1]), "sampling_parameters": ("BYTES", [1]), "stream": ("BOOL", [1])}
    assert {t["name"]: (t["datatype"], t["shape"]) for t in told["outputs"]} == {
        "output_ids": ("INT64", [-1]), "finish_reason": ("BYTES", [1]), "output_logprobs": ("FP32", [-1]),
        "top_ids": ("INT64", [-1, -1]), "top_logprobs": ("FP32", [-1, -1])}
    assert counting.generate(model, input_ids=[5, 6], max_tokens=3).body["output_ids"] == [7, 8, 9]


def test_without_decoupling_infer_works_and_streaming_is_refused(counting: Server) -> None:
    model = counting.add("coupled", 'backend: "dsv41c"\nmodel_transaction_policy { decoupled: false }\n')
    body = {"inputs": [{"name": "input_ids", "datatype": "INT64", "shape": [2], "data": [1, 2]}],
            "parameters": {"max_tokens": 4}}
    reply = counting.post(f"v2/models/{model}/infer", body)
    assert {o["name"]: o["data"] for o in reply.body["outputs"]} == {
        "output_ids": [3, 4, 5, 6], "finish_reason": ["length"]}
    refused = counting.generate(model, input_ids=[1, 2], stream=True)
    assert refused.status == 400 and "found true, needed false: the model is not decoupled" in refused.error


def test_a_batch_size_adds_a_dimension_and_bounds_the_engine(counting: Server) -> None:
    model = counting.add("batched", 'backend: "dsv41c"\nmax_batch_size: 2\n', max_batch=4)
    counting.numbers_when(model, slots=2)
    assert counting.generate(model, input_ids=[1, 2], max_tokens=2).body["output_ids"] == [3, 4]
    body = {"inputs": [{"name": "input_ids", "datatype": "INT64", "shape": [2, 1], "data": [1, 2]}]}
    with GrpcStream(counting) as stream:
        stream.ask(model, [1, 2])  # shape [2]: the server wants [1, n]
        assert stream.answers()["error"].error is not None
    refused = counting.post(f"v2/models/{model}/generate", {"input_ids": []})
    assert refused.status == 400
    assert counting.post(f"v2/models/{model}/infer", body).status == 501  # decoupled


@pytest.mark.parametrize(("config", "words"), [
    ('parameters { key: "kv_page" value { string_value: "3" } }', ['"kv_page"', '"kv_pages"']),
    ('parameters { key: "kv_pages" value { string_value: "many" } }', ["kv_pages", '"many"', "integer"]),
    ('parameters { key: "kv_pages" value { string_value: "-1" } }', ["kv_pages", "-1", "0..18446744073709551615"]),
    ('parameters { key: "kv_pages" value { string_value: "65" } }', ["kv_pages", "found 65", "at most 64"]),
    ('parameters { key: "max_context" value { string_value: "9000" } }', ["max_context", "found 9000", "at most 4096"]),
    ('parameters { key: "verify" value { string_value: "ful" } }', ["verify", '"ful"', '"full"']),
    ("max_batch_size: 5", ["max_batch", "found 5", "at most 4"]),
    ('max_batch_size: 2\nparameters { key: "max_batch" value { string_value: "3" } }', ["max_batch", "2", "3"]),
    ('input [{ name: "input_id" data_type: TYPE_INT64 dims: [-1] }]', ['"input_id"', '"input_ids"']),
    ('input [{ name: "input_ids" data_type: TYPE_INT32 dims: [-1] }]', ["input_ids", "TYPE_INT32", "TYPE_INT64"]),
    ('output [{ name: "output_ids" data_type: TYPE_INT64 dims: [7] }]', ["output_ids", "dims [7]", "[-1]"]),
])
def test_a_wrong_config_is_refused_with_both_values(counting: Server, config: str, words: list[str]) -> None:
    model = f"wrong_{zlib.crc32(config.encode())}"
    folder = counting.repository / model
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(f'backend: "dsv41c"\n{config}\n')
    (folder / "1/fake.json").write_text("{}")
    reply = counting.load(model)
    assert reply.status == 400
    for word in words:
        assert word in reply.error
    assert counting.get("v2/health/live").status == 200


def test_artifacts_that_are_none_are_refused_in_our_words(serving: Server, tmp_path: Path) -> None:
    def load(name: str, config: str = "") -> str:
        folder = serving.repository / name
        (folder / "1").mkdir(parents=True, exist_ok=True)
        (folder / "config.pbtxt").write_text(f'backend: "dsv41c"\n{config}\n')
        reply = serving.load(name)
        assert reply.status == 400
        return reply.error

    assert "DSV41C-E0601" in load("without_artifact")
    broken = serving.repository / "broken_artifact/1"
    broken.mkdir(parents=True)
    for file in (serving.repository / "talk/1").iterdir():
        if file.is_file():
            (broken / file.name).write_bytes(file.read_bytes())
    plan = json.loads((broken / "plan.json").read_text())
    (broken / "plan.json").write_text(json.dumps(plan | {"version": 99}))
    assert "DSV41C-E0602" in load("broken_artifact")
    elsewhere = f'parameters {{ key: "artifact" value {{ string_value: "{tmp_path}" }} }}'
    assert str(tmp_path) in load("elsewhere", elsewhere)
    checked = 'parameters { key: "artifact" value { string_value: "../talk/1" } }\n'
    too_many = checked + 'parameters { key: "max_batch" value { string_value: "1000" } }'
    assert "1000" in (error := load("too_many", too_many)) and "32" in error
    assert serving.get("v2/models/talk/ready").status == 200


def test_defaults_of_the_server_hold_where_a_model_says_nothing(prepared: Path, tmp_path: Path) -> None:
    repository = tmp_path / "defaults"
    repository.mkdir()
    with running(prepared, "plain/backends", repository, "--backend-config=dsv41c,kv_pages=7") as server:
        server.numbers_when(server.add("silent"), kv_pages=7)
        own = 'backend: "dsv41c"\nparameters { key: "kv_pages" value { string_value: "9" } }\n'
        server.numbers_when(server.add("loud", own), kv_pages=9)
