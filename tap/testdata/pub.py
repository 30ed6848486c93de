"""An event publisher on libzmq that behaves as an engine's, for the interop tests.

It prints one line "ready ADDRESS REPLAY" with the addresses that it bound, and
then follows the lines of standard input:

    publish N       sends N batches and prints "sent N NEXT"
    subscribed N    prints "subscribed" once N subscriptions came in all

It ends with its input, so it cannot outlive the test.
"""

import argparse
import struct
import sys
import time

import zmq

END = b"\xff" * 8


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--endpoint", default="tcp://127.0.0.1:0")
    p.add_argument("--connect", action="store_true", help="dial out, as an engine with a concrete host does")
    p.add_argument("--topic", action="append", help="one per publish in turn")
    p.add_argument("--size", type=int, default=100, help="bytes of payload")
    p.add_argument("--rate", type=float, default=0, help="batches a second, 0 for flat out")
    p.add_argument("--hwm", type=int, default=100_000)
    p.add_argument("--heartbeat", type=int, default=0, help="milliseconds, 0 for none")
    p.add_argument("--pub", action="store_true", help="an engine's PUB, which does not tell of subscriptions")
    p.add_argument("--first", type=int, default=0, help="sequence of the first batch")
    p.add_argument("--plain", action="store_true", help="demand PLAIN, user me, password secret")
    p.add_argument("--curve", action="store_true", help="demand CURVE")
    p.add_argument("--replay", action="store_true", help="answer replays")
    p.add_argument("--shape", type=int, default=4, help="frames of a replay answer, 3 or 4")
    p.add_argument("--keep", default="", help="FIRST:LAST batches that the buffer holds at the start")
    p.add_argument("--holes", default="", help="batches that were never sent, with commas")
    p.add_argument("--limit", type=int, default=0, help="batches per answer, which then ends without marker")
    p.add_argument("--mute", action="store_true", help="never answer")
    p.add_argument("--router-hwm", type=int, default=1000)
    return p.parse_args()


class Engine:
    def __init__(self, args):
        self.args = args
        self.context = zmq.Context()
        # XPUB is PUB with subscriptions that can be read: once one is read, it holds.
        self.pub = self.context.socket(zmq.PUB if args.pub else zmq.XPUB)
        if not args.pub:
            self.pub.set(zmq.XPUB_VERBOSE, 1)
        self.subscriptions = 0
        self.pub.set(zmq.LINGER, 0)
        self.pub.set(zmq.SNDHWM, args.hwm)
        if args.heartbeat:
            self.pub.set(zmq.HEARTBEAT_IVL, args.heartbeat)
            self.pub.set(zmq.HEARTBEAT_TIMEOUT, 20 * args.heartbeat)
        if args.plain:
            self.authenticate()
        if args.curve:
            _, secret = zmq.curve_keypair()
            self.pub.set(zmq.CURVE_SERVER, 1)
            self.pub.set(zmq.CURVE_SECRETKEY, secret)
        if args.connect:
            self.pub.connect(args.endpoint)
        else:
            self.pub.bind(args.endpoint)
        self.router = None
        if args.replay:
            self.router = self.context.socket(zmq.ROUTER)
            self.router.set(zmq.LINGER, 0)
            self.router.set(zmq.SNDHWM, args.router_hwm)
            self.router.bind("tcp://127.0.0.1:0")
        holes = {int(n) for n in args.holes.split(",") if n}
        self.buffer = []
        if args.keep:
            first, last = args.keep.split(":")
            for seq in range(int(first), int(last) + 1):
                if seq not in holes:
                    self.buffer.append(self.batch(seq))
        self.seq = args.first
        self.topics = [t.encode() for t in args.topic or [""]]

    def authenticate(self):
        from zmq.auth.thread import ThreadAuthenticator

        self.auth = ThreadAuthenticator(self.context)
        self.auth.start()
        self.auth.configure_plain(domain="*", passwords={"me": "secret"})
        self.pub.set(zmq.PLAIN_SERVER, 1)

    def batch(self, seq):
        body = struct.pack(">Q", seq)
        return seq, body + bytes(max(0, self.args.size - len(body)))

    def publish(self, n):
        began = time.monotonic()
        for i in range(n):
            if self.args.rate:
                time.sleep(max(0, began + i / self.args.rate - time.monotonic()))
            batch = self.batch(self.seq)
            topic = self.topics[self.seq % len(self.topics)]
            self.pub.send_multipart([topic, struct.pack(">Q", self.seq), batch[1]])
            self.buffer.append(batch)
            self.seq += 1
            if self.router and self.router.poll(0):
                self.answer()

    def subscribed(self, n):
        while self.subscriptions < n:
            self.subscriptions += self.pub.recv()[:1] == b"\1"

    def answer(self):
        request = self.router.recv_multipart()
        if len(request) != 3 or self.args.mute:  # as vLLM: logged, no answer
            return
        client, _, start = request
        start = int.from_bytes(start, "big")
        topic = [self.topics[0]] if self.args.shape == 4 else []
        sent = 0
        for seq, payload in self.buffer:
            if seq < start:
                continue
            if self.args.limit and sent == self.args.limit:
                return
            self.router.send_multipart([client, b"", *topic, struct.pack(">Q", seq), payload])
            sent += 1
        self.router.send_multipart([client, b"", *(b"" for _ in topic), END, b""])

    def run(self):
        replay = self.router.get(zmq.LAST_ENDPOINT).decode().rstrip("\0") if self.router else "-"
        print("ready", self.pub.get(zmq.LAST_ENDPOINT).decode().rstrip("\0"), replay, flush=True)
        poller = zmq.Poller()
        poller.register(sys.stdin.fileno(), zmq.POLLIN)
        if self.router:
            poller.register(self.router, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self.router in ready:
                self.answer()
            if sys.stdin.fileno() in ready:
                # Unbuffered, so that no line hides from the poller.
                line = bytearray()
                while not line.endswith(b"\n"):
                    c = sys.stdin.buffer.raw.read(1)
                    if not c:
                        return
                    line += c
                word, n = line.decode().split()
                if word == "subscribed":
                    self.subscribed(int(n))
                    print("subscribed", flush=True)
                else:
                    self.publish(int(n))
                    print("sent", n, self.seq, flush=True)


Engine(arguments()).run()
