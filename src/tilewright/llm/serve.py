"""Language models over HTTP, as clients of OpenAI's interface ask for them: completions and conversations.

One thread steps the batch of the model, and the server's loop gives what it makes to those who wait. A
request that nobody waits for any more, or that takes too long, is cancelled; one that cannot be gets its own
error, and the others go on.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tilewright.driver import optional_module
from tilewright.llm.batch import Request
from tilewright.llm.model import LanguageModel
from tilewright.llm.sampling import Sampling
from tilewright.llm.text import Token
from tilewright.support import InputError, UserError, quoted

Listener: TypeAlias = Callable[[Token | None], None]

#: Fields of requests that are as in :class:`Sampling`, and what they are where a request has none.
_SAMPLING: Final[Mapping[str, float]] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}


@dataclass(frozen=True, slots=True)
class ServeLimits:
    """What a server takes: bytes of a request, requests that wait, and seconds that one may take."""

    body: int = 1 << 20
    queue: int = 64
    seconds: float = 600.0


def check_host(host: str, key: str | None) -> None:
    """Refuse to be reached from other machines without a key. Raises InputError."""
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local and not key:
        raise InputError(
            f"the server would be reached from other machines at {quoted(host)} by anyone",
            hint="--api-key-file FILE names a file with a key that clients have to give, or leave --host out",
        )


class _Worker:
    """The thread that steps the batch of a model."""

    def __init__(self, model: LanguageModel) -> None:
        self.batch = model.batch()
        self.texts = self.tokens = 0
        self._listeners: dict[Request, Listener] = {}
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="tilewright-serve", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End all texts, and the thread."""
        with self._lock:
            self._ending = True
            for request in self._listeners:
                request.cancel()
        self._wake.set()
        self._thread.join()

    def add(self, listen: Listener, prompt: str | list[int], **options: Any) -> Request:
        """A request; ``listen`` gets its tokens, and None at the end, in the worker's thread."""
        with self._lock:
            if self._ending:
                raise InputError("the server ends")
            request = self.batch.add(prompt, **options)
            self._listeners[request] = listen
            self.texts += 1
        self._wake.set()
        return request

    def _run(self) -> None:
        try:
            self._steps()
        finally:
            # nobody waits for what does not come, whatever ended the steps
            with self._lock:
                self._ending = True
                for request, listen in self._listeners.items():
                    request.reason = request.reason or "error"
                    listen(None)

    def _steps(self) -> None:
        while True:
            if not self.batch.running and not self.batch.waiting:
                if self._ending:
                    return
                self._wake.wait()
                self._wake.clear()
                continue
            made = self.batch.step()
            with self._lock:
                self.tokens += len(made)
                for request, token in made:
                    self._listeners[request](token)
                for request in [request for request in self._listeners if request.reason]:
                    self._listeners.pop(request)(None)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a client asks for."""

    chat: bool
    stream: bool
    prompt: str | list[int]
    options: Mapping[str, Any]


class Server:
    """A server of one model; ``app`` is what ASGI servers run.

    ``key`` is what clients have to give, if any. Raises InstallationError without starlette.
    """

    def __init__(
        self, model: LanguageModel, name: str, key: str | None = None, limits: ServeLimits | None = None
    ) -> None:
        self._model, self._name, self._key = model, name, key
        self._limits = limits or ServeLimits()
        self._worker = _Worker(model)
        self._http = optional_module("starlette.responses")
        routing = optional_module("starlette.routing")
        routes = [
            routing.Route("/health", self._health),
            routing.Route("/metrics", self._metrics),
            routing.Route("/v1/models", self._models),
            routing.Route("/v1/completions", self._completions, methods=["POST"]),
            routing.Route("/v1/chat/completions", self._chat, methods=["POST"]),
        ]
        self.app = optional_module("starlette.applications").Starlette(routes=routes, lifespan=self._lifespan)
        """The application."""

    def run(self, host: str, port: int) -> None:
        """Serve until the process is told to end; texts that are being written are ended then.

        Raises InputError for a host that others reach where there is no key, InstallationError without
        uvicorn.
        """
        check_host(host, self._key)
        uvicorn = optional_module("uvicorn")
        uvicorn.run(self.app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=5)

    def _lifespan(self, _: Any) -> Any:
        worker = self._worker

        class Running:
            async def __aenter__(self) -> None:
                worker.start()

            async def __aexit__(self, *_: object) -> None:
                await asyncio.to_thread(worker.stop)

        return Running()

    async def _health(self, _: Any) -> Any:
        return self._http.JSONResponse({"status": "ok"})

    async def _metrics(self, http: Any) -> Any:
        worker = self._worker
        lines = [
            ("tilewright_texts_total", "counter", worker.texts),
            ("tilewright_tokens_total", "counter", worker.tokens),
            ("tilewright_running", "gauge", worker.batch.running),
            ("tilewright_waiting", "gauge", worker.batch.waiting),
        ]
        text = "".join(f"# TYPE {name} {kind}\n{name} {value}\n" for name, kind, value in lines)
        return self._refused(http) or self._http.PlainTextResponse(text)

    async def _models(self, http: Any) -> Any:
        entry = {"id": self._name, "object": "model", "created": 0, "owned_by": "tilewright"}
        return self._refused(http) or self._http.JSONResponse({"object": "list", "data": [entry]})

    async def _completions(self, http: Any) -> Any:
        return await self._answer(http, chat=False)

    async def _chat(self, http: Any) -> Any:
        return await self._answer(http, chat=True)

    def _error(self, status: int, message: str) -> Any:
        kind = "invalid_request_error" if status < 500 else "server_error"
        return self._http.JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status)

    def _refused(self, http: Any) -> Any:
        """The answer to those that do not have the key; None for others."""
        if self._key is None:
            return None
        given = http.headers.get("authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(given.encode(), self._key.encode()):
            return None
        return self._error(401, "the key is missing or wrong")

    async def _answer(self, http: Any, *, chat: bool) -> Any:
        if refused := self._refused(http):
            return refused
        body = b""
        async for part in http.stream():
            body += part
            if len(body) > self._limits.body:
                return self._error(413, f"the request has more than {self._limits.body} bytes")
        if self._worker.batch.waiting >= self._limits.queue:
            return self._error(429, "too many requests are waiting")
        queue: asyncio.Queue[Token | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def listen(token: Token | None) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, token)

        try:
            asked = self._asked(body, chat)
            request = self._worker.add(listen, asked.prompt, **asked.options)
        except UserError as error:
            return self._error(400, error.what)
        prompt = len(request.ids)
        head = {"id": f"tw-{secrets.token_hex(8)}", "created": int(time.time()), "model": self._name}
        if asked.stream:
            events = self._events(request, queue, head, chat)
            return self._http.StreamingResponse(events, media_type="text/event-stream")
        text = ""
        try:
            async for piece in self._pieces(request, queue):
                text += piece
                if await http.is_disconnected():
                    break
        except TimeoutError:
            return self._error(504, f"the text took more than {self._limits.seconds:g} s")
        if request.error is not None:
            return self._error(400, request.error.what)
        said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        choice = {"index": 0, **said, "finish_reason": request.reason, "logprobs": None}
        kind = "chat.completion" if chat else "text_completion"
        counts = {"prompt_tokens": prompt, "completion_tokens": request.made}
        usage = counts | {"total_tokens": prompt + request.made}
        return self._http.JSONResponse({**head, "object": kind, "choices": [choice], "usage": usage})

    async def _pieces(self, request: Request, queue: asyncio.Queue[Token | None]) -> AsyncIterator[str]:
        """The texts of a request's tokens. Raises TimeoutError; whoever stops to listen ends the request."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                while (token := await queue.get()) is not None:
                    yield token.text
        finally:
            request.cancel()

    async def _events(
        self, request: Request, queue: asyncio.Queue[Token | None], head: Mapping[str, Any], chat: bool
    ) -> AsyncIterator[str]:
        """Pieces of a text as events of a server."""

        def event(said: dict[str, Any], reason: str | None) -> str:
            content = {"delta": said} if chat else {"text": said.get("content", "")}
            kind = "chat.completion.chunk" if chat else "text_completion"
            choice = {"index": 0, **content, "finish_reason": reason, "logprobs": None}
            return f"data: {json.dumps({**head, 'object': kind, 'choices': [choice]})}\n\n"

        error = None
        try:
            if chat:
                yield event({"role": "assistant", "content": ""}, None)
            async for piece in self._pieces(request, queue):
                if piece:
                    yield event({"content": piece}, None)
            error = None if request.error is None else request.error.what
        except TimeoutError:
            error = f"the text took more than {self._limits.seconds:g} s"
        if error is not None:
            yield f"data: {json.dumps({'error': {'message': error}})}\n\n"
        else:
            yield event({}, request.reason)
        yield "data: [DONE]\n\n"

    def _asked(self, body: bytes, chat: bool) -> _Asked:
        """What a request asks for. Raises InputError for what cannot be."""
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            raise InputError("the request is not JSON") from None
        if not isinstance(data, dict):
            raise InputError("the request is no JSON object")
        given = {name: value for name, value in data.items() if value is not None}
        if given.get("n", 1) != 1:
            raise InputError("n is other than 1: a request gets one text")
        values = {name: given.get(name, usual) for name, usual in _SAMPLING.items()}
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"{name} is no number")
        seed = given.get("seed", secrets.randbits(32))
        stop = given.get("stop", ())
        stops = [stop] if isinstance(stop, str) else stop
        if not isinstance(stops, list | tuple) or not all(isinstance(each, str) for each in stops):
            raise InputError("stop is a text, or a list of texts")
        prompt = self._model.chat(given.get("messages")) if chat else given.get("prompt")
        if not isinstance(prompt, str | list):
            raise InputError("prompt is a text, or a list of the numbers of tokens")
        tokens = given.get("max_completion_tokens", given.get("max_tokens"))
        options = {"tokens": tokens, "sampling": Sampling(**values, seed=seed), "stop": stops}
        return _Asked(chat, bool(given.get("stream", False)), prompt, options)
