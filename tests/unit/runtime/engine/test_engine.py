"""Admission, order, endings and accounting of an engine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv41c.runtime.engine import Engine
from dsv41c.runtime.generation import Answer, Tokens
from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.sampling_params import SamplingParams
from tests.unit.runtime.engine.conftest import prompt_of

LONG = SamplingParams(max_new_tokens=90, ignore_eos=True)


def assert_nothing_held(engine: Engine) -> None:
    stats = engine.stats()
    assert {name: stats[name] for name in ("requests_active", "requests_queued", "kv_pages_used", "slots_used")} == {
        "requests_active": 0, "requests_queued": 0, "kv_pages_used": 0, "slots_used": 0}


def refusal(call: Callable[[], object]) -> Dsv41cError:
    with pytest.raises(Dsv41cError) as caught:
        call()
    return caught.value


def test_one_prompt_and_a_batch(runtime: Runtime) -> None:
    one = runtime.generate(prompt_of(9), max_new_tokens=5, ignore_eos=True)
    batch = runtime.generate([prompt_of(9), prompt_of(3, 4)], max_new_tokens=5, ignore_eos=True)
    assert isinstance(one, Answer) and isinstance(batch, list)
    assert one.tokens == batch[0].tokens and len(batch[1].tokens) == 5
    assert one.finish_reason == "length" and one.prompt_ids == tuple(prompt_of(9))


def test_tokens_come_one_by_one(runtime: Runtime) -> None:
    async def collect() -> list[Tokens]:
        return [news async for news in runtime.stream(prompt_of(9), max_new_tokens=12, ignore_eos=True)]

    news = asyncio.run(collect())
    whole = runtime.generate(prompt_of(9), max_new_tokens=12, ignore_eos=True)
    assert isinstance(whole, Answer)
    assert tuple(i for one in news for i in one.ids) == whole.tokens
    assert [one.first_index for one in news] == [sum(len(n.ids) for n in news[:i]) for i in range(len(news))]


def test_leaving_a_stream_cancels(runtime: Runtime) -> None:
    async def leave() -> None:
        stream = runtime.stream(prompt_of(9), max_new_tokens=100, ignore_eos=True)
        async for _ in stream:
            break
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(leave())
    runtime.engine().submit(prompt_of(3), SamplingParams(max_new_tokens=1)).wait()
    assert_nothing_held(runtime.engine())


def test_a_failing_stream_raises(runtime: Runtime) -> None:
    async def collect() -> None:
        async for _ in runtime.stream(prompt_of(9), max_new_tokens=110, deadline_ms=1):
            pass

    runtime.engine().pause()
    with pytest.raises(Dsv41cError, match="E1004"):
        asyncio.run(collect())


def test_never_fits_is_refused_at_once_with_the_numbers(runtime: Runtime) -> None:
    engine = runtime.engine(kv_pages=4)
    neighbour = engine.submit(prompt_of(20), SamplingParams(max_new_tokens=20, ignore_eos=True))
    error = refusal(lambda: engine.submit(prompt_of(40), SamplingParams(max_new_tokens=26)))
    assert error.code == "DSV41C-E1001"
    assert error.found == "65 rows (prompt 40, max_new_tokens 26), 5 pages of 16"
    assert error.needed == "at most 4 pages, all that the engine has"
    assert len(neighbour.wait().tokens) == 20
    assert len(engine.generate([prompt_of(40)], SamplingParams(max_new_tokens=25, ignore_eos=True))[0].tokens) == 25
    assert_nothing_held(engine)


def test_a_full_queue_refuses(runtime: Runtime) -> None:
    engine = runtime.engine(max_batch=2, max_queue=3)
    engine.pause()
    waiting = [engine.submit(prompt_of(4, i), SamplingParams(max_new_tokens=2)) for i in range(5)]
    error = refusal(lambda: engine.submit(prompt_of(4), SamplingParams()))
    assert (error.code, error.found) == ("DSV41C-E1002", "3 waiting requests")
    engine.pause(False)
    assert [g.wait().error for g in waiting] == [None] * 5
    assert engine.stats()["requests_refused"] == 1


def test_urgent_requests_go_first_and_equals_in_order_of_arrival(runtime: Runtime) -> None:
    engine = runtime.engine(max_batch=1)
    engine.pause()
    order: list[int] = []
    priorities = [5, 0, 5, 1, 0]
    waiting = [engine.submit(prompt_of(4, i), SamplingParams(max_new_tokens=3, ignore_eos=True, priority=p),
                             on_tokens=lambda news, i=i: order.append(i) if news.first_index == 0 else None)
               for i, p in enumerate(priorities)]
    engine.pause(False)
    for one in waiting:
        one.wait()
    assert order == [1, 4, 3, 0, 2]


def test_the_least_urgent_gives_up_its_pages(runtime: Runtime) -> None:
    """Although it came first."""
    engine = runtime.engine(kv_pages=7)
    engine.pause()
    less, more = (engine.submit(prompt_of(37, p), SamplingParams(max_new_tokens=30, ignore_eos=True, priority=p))
                  for p in (1, 0))
    engine.pause(False)
    assert (less.wait().preemptions, more.wait().preemptions) == (1, 0)


def test_deadlines_of_waiting_and_running_requests(runtime: Runtime) -> None:
    engine = runtime.engine(max_batch=1)
    engine.pause()
    waiting = engine.submit(prompt_of(9), SamplingParams(deadline_ms=30))
    answer = waiting.wait(10)  # paused: nothing wakes the engine but the deadline itself
    assert answer.finish_reason == "deadline" and answer.error is not None
    assert (answer.error.code, answer.error.found) == ("DSV41C-E1004", "0 tokens after 30 ms")
    held = threading.Event()
    running = engine.submit(prompt_of(9), SamplingParams(max_new_tokens=100, ignore_eos=True, deadline_ms=200),
                            on_tokens=lambda _: engine.pause() if not held.is_set() and not held.set() else None)
    engine.pause(False)
    answer = running.wait(10)
    assert answer.finish_reason == "deadline" and 1 <= len(answer.tokens) < 100
    engine.pause(False)
    assert_nothing_held(engine)


def test_stop_ids_end_and_min_new_tokens_hold_them_off(runtime: Runtime) -> None:
    engine = runtime.engine()
    free = engine.generate([prompt_of(9)], SamplingParams(max_new_tokens=8, ignore_eos=True))[0].tokens
    stopped = engine.generate([prompt_of(9)], SamplingParams(max_new_tokens=8, ignore_eos=True, stop_ids=[free[2]]))[0]
    assert stopped.finish_reason == "stop" and stopped.tokens == free[: free.index(free[2]) + 1]
    held = engine.generate([prompt_of(9)], SamplingParams(max_new_tokens=8, min_new_tokens=5, ignore_eos=True,
                                                          stop_ids=[free[2]]))[0]
    assert free[2] not in held.tokens[:5] and held.tokens[: free.index(free[2])] == free[: free.index(free[2])]


def test_the_context_ends_a_request(runtime: Runtime) -> None:
    answer = runtime.engine().generate([prompt_of(120)], SamplingParams(max_new_tokens=500, ignore_eos=True))[0]
    assert (answer.finish_reason, len(answer.tokens)) == ("length", 8)
    short = runtime.engine(max_context=20).generate([prompt_of(15)], LONG)[0]
    assert (short.finish_reason, len(short.tokens)) == ("length", 5)


def test_a_slow_consumer_stalls_nobody_and_loses_nothing(runtime: Runtime) -> None:
    engine, release = runtime.engine(), threading.Event()
    runs: list[Tokens] = []

    def slow(news: Tokens) -> None:
        runs.append(news)
        release.wait()

    slow_ones = [engine.submit(prompt_of(9, i), LONG, on_tokens=slow) for i in range(8)]
    quick = [engine.submit(prompt_of(9, i), LONG).wait() for i in range(8)]
    assert {len(answer.tokens) for answer in quick} == {90}
    while engine.stats()["requests_active"]:  # the slow ones are computed, though nobody took their tokens
        engine.submit(prompt_of(2), SamplingParams(max_new_tokens=1)).wait()
    assert len(runs) == 8
    release.set()
    assert [g.wait().tokens for g in slow_ones] == [answer.tokens for answer in quick]
    assert len(runs) == 16, "what waited came joined, in one event"


def test_what_a_callback_raises_cancels_and_reaches_the_waiter(runtime: Runtime) -> None:
    def raises(_: Tokens) -> None:
        raise KeyError("mine")

    generation = runtime.engine().submit(prompt_of(9), LONG, on_tokens=raises)
    with pytest.raises(KeyError, match="mine"):
        generation.wait()
    runtime.engine().submit(prompt_of(3), SamplingParams(max_new_tokens=1)).wait()
    assert_nothing_held(runtime.engine())


def test_close_ends_what_runs(runtime: Runtime) -> None:
    engine = runtime.engine()
    started = threading.Event()
    running = [engine.submit(prompt_of(9, i), LONG, on_tokens=lambda _: started.set()) for i in range(3)]
    started.wait()
    engine.pause()
    waiting = engine.submit(prompt_of(9), LONG)
    engine.close()
    for generation in (*running, waiting):
        answer = generation.wait(0)
        assert answer.finish_reason == "cancel" and answer.error is not None and answer.error.code == "DSV41C-E1005"
    assert refusal(lambda: engine.submit([1], LONG)).code == "DSV41C-E1005"
    engine.close()


def test_a_runtime_takes_no_steps_while_an_engine_is_open(runtime: Runtime) -> None:
    runtime.generate([1, 2, 3], max_new_tokens=2)
    error = refusal(runtime.synchronize)
    assert error.code == "DSV41C-E0801" and error.do == "close the engine first"
    assert refusal(lambda: runtime.state("slot_position")).code == "DSV41C-E0801"
    runtime.engine().close()
    runtime.synchronize()
    assert runtime.state("slot_position").shape[0] == 33


def test_a_child_process_cannot_use_the_engine_of_its_parent(runtime: Runtime) -> None:
    engine = runtime.engine()
    child = os.fork()
    if child == 0:  # leaves without the interpreter's clean-up, which belongs to the parent
        os._exit(0 if refusal(engine.stats).code == "DSV41C-E1005" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert engine.stats()["slots_used"] == 0


def test_the_interpreter_may_end_while_requests_run(engine_artifact: Path) -> None:
    """Nothing is closed, and a callback is on its way."""
    program = (f"from dsv41c.runtime.load import load\nfrom dsv41c.runtime.sampling_params import SamplingParams\n"
               f"import threading\nstarted = threading.Event()\nruntime = load({str(engine_artifact)!r})\n"
               "params = SamplingParams(max_new_tokens=120, ignore_eos=True)\n"
               "running = [runtime.engine().submit([1, 2, i], params, on_tokens=lambda _: started.set())\n"
               "           for i in range(40)]\nstarted.wait()\nprint('left')\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")


def test_statistics_and_metrics_count(runtime: Runtime) -> None:
    engine = runtime.engine()
    before = engine.stats()
    assert before["kv_pages_total"] == 32 * 8 and before["slots_total"] == 32 and before["planned_bytes"] > 0
    engine.generate([prompt_of(70, i) for i in range(6)], SamplingParams(max_new_tokens=4, ignore_eos=True))
    after = engine.stats()
    assert after["tokens_in"] == 420 and after["tokens_out"] == 24 and after["requests_done"] == 6
    assert after["step_rows"] == 6 * (70 + 3)
    assert after["step_requests"] > after["steps"], "requests share steps"
    text = engine.metrics()
    assert "dsv41c_generation_tokens_total 24\n" in text
    assert 'dsv41c_requests_total{end="done"} 6\n' in text
    assert 'dsv41c_time_to_first_token_seconds_bucket{le="+Inf"} 6\n' in text
    for line in text.splitlines():
        assert line.startswith(("# HELP dsv41c_", "# TYPE dsv41c_")) or len(line.split(" ")) == 2


@pytest.mark.parametrize(("limits", "field"), [({"max_batch": 33}, "max_batch"), ({"max_context": 129}, "max_context"),
                                               ({"kv_pages": 257}, "kv_pages"), ({"max_context": 1}, "max_context"),
                                               ({"max_batch_tokens": 31}, "max_batch_tokens")])
def test_limits_can_only_be_lowered(runtime: Runtime, limits: dict[str, int], field: str) -> None:
    error = refusal(lambda: runtime.engine(**limits))
    assert (error.code, error.subject) == ("DSV41C-E0901", field)


def test_limits_in_force(runtime: Runtime) -> None:
    assert runtime.engine(max_batch=4, kv_pages=9, max_queue=2).info() == {
        "max_batch": 4, "max_batch_tokens": 64, "max_queue": 2, "vocab": 96, "max_context": 128, "block_size": 16,
        "kv_pages": 9}


BAD = [
    ([-1], {}, "E0902"), ([96], {}, "E0902"), ([2**31], {}, "E0902"), ([1.5], {}, "E0902"), (["7"], {}, "E0902"),
    ([True], {}, "E0902"), ([], {}, "E0902"), ([1] * 128, {}, "E0902"), ([1], {"max_new_tokens": 0}, "E0901"),
    ([1], {"max_new_tokens": 2**32}, "E0901"), ([1], {"min_new_tokens": 17}, "E0901"), ([1], {"top_p": 0}, "E0901"),
    ([1], {"top_p": 1.1}, "E0901"), ([1], {"top_p": float("nan")}, "E0901"), ([1], {"temperature": -1}, "E0901"),
    ([1], {"temperature": float("nan")}, "E0901"), ([1], {"temperature": float("inf")}, "E0901"),
    ([1], {"temperature": 10**400}, "E0901"), ([1], {"temperature": "1"}, "E0901"), ([1], {"seed": -1}, "E0901"),
    ([1], {"seed": 2**64}, "E0901"), ([1], {"seed": 1.0}, "E0901"), ([1], {"top_k": -1}, "E0901"),
    ([1], {"n_logprobs": 21}, "E0901"), ([1], {"stop_ids": [96]}, "E0901"), ([1], {"stop_ids": [1] * 65}, "E0901"),
    ([1], {"priority": -1}, "E0901"), ([1], {"deadline_ms": -1}, "E0901"),
]


@pytest.mark.parametrize(("prompt", "settings", "code"), BAD, ids=str)
def test_bad_fields_are_refused_by_name_and_disturb_nobody(engine_artifact: Path, prompt: list, settings: dict,
                                                           code: str) -> None:
    with load(engine_artifact) as runtime:
        neighbour = runtime.engine().submit(prompt_of(9), SamplingParams(max_new_tokens=3, ignore_eos=True))
        error = refusal(lambda: runtime.generate(prompt, **settings))
        assert error.code == f"DSV41C-{code}"
        assert all(field in error.subject for field in settings) and error.found and error.needed
        assert len(neighbour.wait().tokens) == 3


def test_an_unknown_parameter_is_an_error(runtime: Runtime) -> None:
    with pytest.raises(TypeError, match="tempratur"):
        runtime.generate([1], tempratur=1)
