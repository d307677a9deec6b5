"""The server, asked by the client that others use for OpenAI's interface, and by hand."""

import json
import threading
import time

import numpy as np
import pytest

from tilewright import llm
from tilewright.llm.batch import Batch, Request
from tilewright.llm.serve import ServeLimits, Server, check_host
from tilewright.llm.text import TextStream
from tilewright.support import InputError
from unit.llm.test_batch import _Model

openai = pytest.importorskip("openai")
httpx = pytest.importorskip("httpx")
uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
KEY = "a key"


class _Words(_Model):
    """The model of test_batch.py with a tokenizer of words w0, w1 …"""

    pause = 0.0

    def step(self, *given):
        time.sleep(self.pause)
        return super().step(*given)

    def batch(self):
        return Batch(self, self.request)

    def chat(self, messages):
        if not isinstance(messages, list):
            raise InputError("a conversation is a list of messages")
        return [int(word[1:]) for message in messages for word in message["content"].split()]

    def request(self, prompt, *, tokens=None, sampling=None, stop=()):
        ids = [int(word[1:]) for word in prompt.split()] if isinstance(prompt, str) else [*prompt]
        if not ids or len(ids) > 30:
            raise InputError(f"a prompt of {len(ids)} tokens")
        stream = TextStream(lambda found: " ".join(f"w{n}" for n in found), tuple(stop))
        return Request(ids, tokens or 8, sampling or llm.Sampling(), stream)


class _Served:
    """A server in a thread of its own."""

    def __init__(self, model, **limits):
        self.worker = Server(model, "words", KEY, ServeLimits(**limits))
        config = uvicorn.Config(self.worker.app, port=0, log_level="error", timeout_graceful_shutdown=2)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)

    def __enter__(self):
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.client = openai.OpenAI(api_key=KEY, base_url=f"{self.url}/v1", max_retries=0)
        return self

    def __exit__(self, *_):
        self.client.close()
        self._server.should_exit = True
        self._thread.join()

    def post(self, content, path="/v1/completions", key=KEY):
        return httpx.post(self.url + path, content=content, headers={"Authorization": f"Bearer {key}"})


@pytest.fixture(scope="module")
def served():
    with _Served(_Words(3)) as made:
        yield made


def _wanted(prompt, tokens=8):
    model = _Words(1)
    batch = model.batch()
    request = batch.add(prompt, tokens=tokens)
    while not request.reason:
        batch.step()
    return " ".join(f"w{n}" for n in request.ids[len(prompt.split()) :]), request.reason


def test_completions_and_conversations(served):
    client = served.client
    (model,) = client.models.list().data
    made = client.completions.create(model=model.id, prompt="w3 w4", max_tokens=5, temperature=0)
    text, reason = _wanted("w3 w4", 5)
    assert (made.choices[0].text, made.choices[0].finish_reason) == (text, reason)
    assert made.usage.prompt_tokens == 2 and made.usage.total_tokens == 2 + made.usage.completion_tokens
    messages = [{"role": "user", "content": "w3"}, {"role": "user", "content": "w4"}]
    said = client.chat.completions.create(model="words", messages=messages, max_tokens=5, temperature=0)
    assert said.choices[0].message.content == text
    events = client.chat.completions.create(
        model="words", messages=messages, max_tokens=5, temperature=0, stream=True
    )
    parts = [event.choices[0] for event in events]
    assert "".join(part.delta.content or "" for part in parts) == text and parts[-1].finish_reason == reason
    parts = [
        *client.completions.create(model="words", prompt=[3, 4], max_tokens=5, temperature=0, stream=True)
    ]
    assert "".join(part.choices[0].text for part in parts) == text
    word = text.split()[1]
    ended = client.completions.create(model="words", prompt="w3 w4", stop=word, temperature=0)
    assert ended.choices[0].text == text[: text.index(word)] and ended.choices[0].finish_reason == "stop"


def test_eight_clients_at_once(served):
    rng, found = np.random.default_rng(0), {}
    prompts = [" ".join(f"w{n}" for n in rng.integers(1, 40, rng.integers(1, 20))) for _ in range(24)]

    def ask(own):
        for prompt in own:
            made = served.client.completions.create(model="words", prompt=prompt, temperature=0)
            found[prompt] = made.choices[0].text

    threads = [threading.Thread(target=ask, args=(prompts[n::8],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {prompt: _wanted(prompt)[0] for prompt in prompts}
    metrics = httpx.get(f"{served.url}/metrics", headers={"Authorization": f"Bearer {KEY}"}).text
    assert "tilewright_running 0" in metrics and "tilewright_waiting 0" in metrics


@pytest.mark.parametrize(
    ("request_", "status", "problem"),
    [
        ("{", 400, "is not JSON"),
        ("[1]", 400, "is no JSON object"),
        ('{"prompt": "w1", "n": 2}', 400, "n is other than 1"),
        ('{"prompt": "w1", "temperature": "hot"}', 400, "temperature is no number"),
        ('{"prompt": "w1", "temperature": -1}', 400, "temperature is -1"),
        ('{"prompt": "w1", "stop": [3]}', 400, "stop is a text, or a list of texts"),
        ('{"prompt": {}}', 400, "prompt is a text, or a list"),
        ("{}", 400, "prompt is a text, or a list"),
        ('{"prompt": ""}', 400, "a prompt of 0 tokens"),
        ('{"prompt": [-1]}', 400, "a token is out of range"),
        ('{"prompt": "' + "w1 " * 9000 + '"}', 413, "more than 20000 bytes"),
    ],
)
def test_requests_that_cannot_be_get_their_own_error(request_, status, problem):
    with _Served(_Words(1), body=20000) as own:
        answer = own.post(request_)
        assert answer.status_code == status and problem in answer.json()["error"]["message"]
        assert own.post('{"prompt": "w3", "max_tokens": 1}').status_code == 200


def test_an_error_comes_as_an_event_where_a_text_has_begun(served):
    lines = served.post('{"prompt": [-1], "stream": true}').text.split("\n\n")
    assert "out of range" in json.loads(lines[0].removeprefix("data: "))["error"]["message"]
    answer = served.post("{}", "/v1/chat/completions")
    assert answer.status_code == 400 and "a conversation is a list" in answer.json()["error"]["message"]


def test_without_the_key_nothing_is_told_but_health(served):
    for path in ("/v1/completions", "/v1/chat/completions"):
        assert served.post("{}", path, key="another").status_code == 401
    assert httpx.get(f"{served.url}/v1/models").status_code == 401
    assert httpx.get(f"{served.url}/metrics").status_code == 401
    assert httpx.get(f"{served.url}/health").json() == {"status": "ok"}


def test_texts_that_nobody_waits_for_are_ended_and_slow_ones_too():
    model = _Words(1)
    # thirty tokens take far longer than that, however late a busy machine looks at its clock
    model.pause = 0.3
    with _Served(model, seconds=0.1) as own:
        assert own.post('{"prompt": "w3", "max_tokens": 30}').status_code == 504
        late = own.post('{"prompt": "w3", "max_tokens": 30, "stream": true}')
        assert "took more than 0.1 s" in late.text
    model.pause = 0.02
    with _Served(model, queue=1) as own:
        with own.client.completions.create(model="words", prompt="w3", max_tokens=30, stream=True) as events:
            next(iter(events))
        assert own.post('{"prompt": "w4", "max_tokens": 1}').status_code == 200
        # none of these ends before the last one asks
        model.pause = 0.5
        for prompt in ("w5", "w6", "w7"):
            own.worker._worker.add(lambda _: None, prompt, tokens=30)
        assert own.post('{"prompt": "w4"}').status_code == 429


def test_the_end_of_a_server_ends_its_texts():
    model = _Words(1)
    model.pause = 0.02
    own = _Served(model)
    with own:
        request = own.worker._worker.add(lambda _: None, "w3", tokens=30)
    assert request.reason and not own.worker._worker._thread.is_alive()
    with pytest.raises(InputError, match="the server ends"):
        own.worker._worker.add(lambda _: None, "w3")


def test_others_reach_a_server_with_a_key_alone():
    for host in ("127.0.0.1", "::1", "localhost"):
        check_host(host, None)
    for host in ("0.0.0.0", "10.0.0.1", "example.org"):
        check_host(host, KEY)
        with pytest.raises(InputError, match="reached from other machines"):
            check_host(host, None)
