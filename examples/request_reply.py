"""Request and reply over two queues, with QueenMQ's official client: pip install queen-mq==2.6.0"""
import asyncio
import os
import uuid

from queen import Queen

URL = os.environ.get("MAYFLY_URL", "http://127.0.0.1:6632")


async def responder(queues):
    """Answers one request: squares its number, replies to the inbox it names, then acks it."""
    got = await queues.pop("squares", group="workers", wait=True, timeout=10000)
    for message in got["messages"]:
        request = message["payload"]
        await queues.push(request["replyTo"], [{"squared": request["n"] ** 2}])
    await queues.ack("squares", got["messages"], group="workers")


async def main():
    async with Queen(url=URL) as queen:
        queues = queen.ephemeral
        worker = asyncio.create_task(responder(queues))
        inbox = f"inbox-{uuid.uuid4()}"  # the queue comes into being with its first use and goes when it is idle
        await queues.push("squares", [{"n": 7, "replyTo": inbox}])
        reply = await queues.pop(inbox, wait=True, timeout=5000, auto_ack=True)
        print(reply["messages"][0]["payload"])
        await worker


asyncio.run(main())
