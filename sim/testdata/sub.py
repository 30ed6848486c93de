"""A subscriber and a replay client on libzmq, for the interop test.

Arguments: the addresses of the event and the replay socket. It prints "ready"
once both are connected, and then follows the lines of standard input, so it
cannot outlive the test:

    subscribe TOPIC    unsubscribe TOPIC    (prints "done")
    receive N          prints "live TOPIC SEQ PAYLOAD" N times
    replay START       prints "kept TOPIC SEQ PAYLOAD" and at last "end"

TOPIC is @ where it is empty.
"""

import sys
import time

import zmq

END = 2**64 - 1


def main():
    events, replay = sys.argv[1:]
    context = zmq.Context()
    sub = context.socket(zmq.SUB)
    # A publisher that gives no answer to PING is dropped.
    sub.set(zmq.HEARTBEAT_IVL, 50)
    sub.set(zmq.HEARTBEAT_TIMEOUT, 2000)
    sub.set(zmq.RCVHWM, 0)
    dealer = context.socket(zmq.DEALER)
    dealer.set(zmq.RCVHWM, 0)
    monitor = sub.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    for s in sub, dealer:
        s.set(zmq.LINGER, 0)
        s.set(zmq.RCVTIMEO, 20_000)
    sub.connect(events)
    dealer.connect(replay)
    print("ready", flush=True)
    for line in sys.stdin:
        word, argument = line.split()
        topic = argument.encode() if argument != "@" else b""
        if word == "subscribe":
            sub.subscribe(topic)
            print("done", flush=True)
        elif word == "unsubscribe":
            sub.unsubscribe(topic)
            print("done", flush=True)
        elif word == "receive":
            for _ in range(int(argument)):
                topic, seq, payload = sub.recv_multipart()
                print("live", topic.decode(), int.from_bytes(seq, "big"), payload.decode(), flush=True)
        elif word == "replay":
            dealer.send_multipart([b"", int(argument).to_bytes(8, "big")])
            while True:
                frames = dealer.recv_multipart()
                seq = int.from_bytes(frames[-2], "big")
                if seq == END:
                    print("end", len(frames), flush=True)
                    break
                topic = frames[1].decode() if len(frames) == 4 else "-"
                print("kept", topic, seq, frames[-1].decode(), flush=True)
        elif word == "quiet":
            time.sleep(float(argument))
            print("disconnects", monitor.poll(0), flush=True)


main()
