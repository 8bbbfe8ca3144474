"""A plugin for pytest: kazoo's own tests run on a server that is there already.

kazoo's harness starts three ZooKeeper servers, and stops and starts one now and then. Here each of the three is a port that
leads to the server at $KAZOO_SERVER; stopping it closes the port and its connections, and what the server holds stays.
"""

import asyncio
import os
import sys
import threading
import types


class Server:
    def __init__(self, loop, backend):
        self._loop, self._backend = loop, backend
        self._port, self._listener, self._writers = 0, None, set()

    @property
    def address(self):
        return "127.0.0.1:%d" % self._port

    @property
    def running(self):
        return self._listener is not None

    def run(self):
        if not self.running:
            self._wait(self._open())

    def stop(self):
        if self.running:
            self._wait(self._close())

    def _wait(self, coroutine):
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _open(self):
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._listener.sockets[0].getsockname()[1]

    async def _close(self):
        self._listener.close()
        self._listener = None
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader, writer):
        try:
            answers, requests = await asyncio.open_connection(*self._backend)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, requests}
        if not self.running:  # it was stopped meanwhile
            writer.transport.abort()
        await asyncio.gather(self._copy(reader, requests), self._copy(answers, writer))
        self._writers -= {writer, requests}

    async def _copy(self, reader, writer):
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # the connection was cut
        finally:
            writer.close()


class Cluster(list):
    """What the harness calls a cluster, of which it uses these methods."""

    def __init__(self, **_):
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        host, _, port = os.environ["KAZOO_SERVER"].rpartition(":")
        super().__init__(Server(loop, (host, int(port))) for _ in range(3))

    def start(self):
        for server in self:
            server.run()

    def terminate(self):
        for server in self:
            server.stop()

    def get_logs(self):
        return []


# kazoo's own module starts Java, and imports libraries for it that are not installed.
common = types.ModuleType("kazoo.testing.common")
common.ZookeeperCluster = Cluster
sys.modules[common.__name__] = common
