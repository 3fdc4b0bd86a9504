"""A TCP proxy that is not to be trusted: it cuts, delays, falls silent, and loses answers. It knows no protocol."""

from __future__ import annotations

import asyncio
from typing import Self


class Proxy:
    """Between a client and a port on 127.0.0.1. A context manager; `port` is its own, kept until it ends.

    `lose` is a word: the answer to every `every`-th request that holds it is read, and the connection ended instead.
    """

    def __init__(self, target: int, *, lose: bytes = b"", every: int = 1) -> None:
        self.target, self.delay_s, self.lost = target, 0.0, 0
        self.lose, self._every, self._asked = lose, every, 0
        self._open = asyncio.Event()
        self._open.set()
        self._cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def reset(self) -> None:
        """End every connection now."""
        for writer in list(self._writers):
            writer.transport.abort()

    def cut(self) -> None:
        """End every connection, and take none."""
        self._cut = True
        self.reset()

    def silence(self) -> None:
        """Pass nothing on; connections stay."""
        self._open.clear()

    def heal(self) -> None:
        """As if nothing had been."""
        self._cut, self.delay_s = False, 0.0
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._cut:
            writer.transport.abort()
            return
        try:
            theirs, them = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, them}
        doomed = asyncio.Event()
        try:
            await asyncio.gather(self._pass(reader, them, doomed, True), self._pass(theirs, writer, doomed, False))
        except OSError:
            pass
        finally:
            self._writers -= {writer, them}
            for end in (writer, them):
                end.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, doomed: asyncio.Event, asks: bool
    ) -> None:
        while data := await reader.read(1 << 16):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            await self._open.wait()
            if asks and self.lose and self.lose in data:
                self._asked += 1
                if self._asked % self._every == 0:
                    doomed.set()
            elif not asks and doomed.is_set():
                self.lost += 1
                raise ConnectionResetError
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError
