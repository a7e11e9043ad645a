"""The example of a group whose members get any message."""

from partq.testing.local_broker import LocalBroker
from tests.examples.programs import output, start


async def test_each_job_is_done_once_and_the_one_that_fails_is_repeated_alone():
    async with LocalBroker(partitions=1, groups={"thumbnails": {"type": "Shared"}}) as local:
        tokens = ("--publish", local.tokens.produce, "--consume", local.tokens.consume)
        lines = await output(await start("thumbnails.py", "--url", local.url, *tokens))
    assert sum("image-05 has failed at " in line for line in lines) == 1
    (repeated,) = [line for line in lines if " is repeated by " in line]
    assert repeated.startswith("image-05 ")
    assert "ann leaves" in lines
    told = [line.partition(": ") for line in lines[-3:]]
    done = {name: images.split(", ") for name, _, images in told}
    assert sorted(image for images in done.values() for image in images) == [
        f"image-{number:02d}" for number in range(24)
    ]
    assert len(done["ann"]) == 3
    assert all(images != [""] for images in done.values()), "also one partition is at all of them"
