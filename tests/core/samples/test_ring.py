"""The ring of the last samples."""

from partq.core.samples.ring import KEPT_STEPS, Sample, SampleRing


def test_the_ring_keeps_the_last_steps_and_says_which_it_lacks():
    ring = SampleRing()
    for step in range(1, 400):
        if step != 398:
            ring.add(Sample(step, step, (), {}))
    window = ring.window(400)
    assert len(window) == KEPT_STEPS
    assert [each and each.accepted for each in window[-4:]] == [397, None, 399, None]
    assert len([each for each in window if each]) == KEPT_STEPS - 2
