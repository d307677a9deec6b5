import threading

import numpy as np
import pytest

from tilewright.runtime import ALIGNMENT, Results, address_of
from tilewright.runtime.results import RECYCLED, RECYCLED_BYTES

F32 = np.dtype(np.float32)
SMALL = (F32, (7, 5))
NATIVE = (F32, (600, 600))  # from the native allocator


@pytest.mark.parametrize(
    "kind", [SMALL, NATIVE, (F32, ()), (F32, (0, 3)), (np.dtype(np.uint8), (9,))], ids=str
)
def test_arrays_are_as_asked_for(kind):
    (array,) = Results([kind]).take()
    assert (array.dtype, array.shape) == kind
    assert array.flags.writeable and array.flags.c_contiguous
    assert address_of(array) % ALIGNMENT == 0


@pytest.mark.parametrize("kind", [SMALL, NATIVE], ids=str)
def test_memory_of_dropped_arrays_is_used_again(kind):
    results = Results([kind])
    (array,) = results.take()
    address = address_of(array)
    del array
    (array,) = results.take()
    assert address_of(array) == address


@pytest.mark.parametrize("kind", [SMALL, NATIVE], ids=str)
@pytest.mark.parametrize(
    "part",
    [lambda a: a, lambda a: a[1:3], lambda a: a.T.reshape(-1)[2:], memoryview],
    ids=["all", "rows", "copy", "memoryview"],
)
def test_memory_that_somebody_holds_is_not(kind, part):
    results = Results([kind])
    held = []
    for n in range(2 * RECYCLED + 1):
        (array,) = results.take()
        array[...] = n
        held.append(part(array))
        del array
    for n, values in enumerate(held):
        assert (np.asarray(values) == n).all()


def test_a_caller_who_holds_the_last_result_alternates_between_two_blocks():
    results = Results([SMALL])
    (array,) = results.take()
    seen = set()
    for _ in range(6):
        (array,) = results.take()
        seen.add(address_of(array))
    assert len(seen) == 2


def test_a_caller_who_keeps_everything_leaves_no_more_than_two_blocks_behind():
    results = Results([SMALL])
    held = [results.take()[0] for _ in range(9)]
    addresses = {address_of(array) for array in held}
    held.clear()
    again = [results.take()[0] for _ in range(RECYCLED)]
    assert len({address_of(array) for array in again} & addresses) >= 1
    assert len(addresses) == 9


def test_large_and_trimmed_results_are_not_kept():
    large = Results([(np.dtype(np.uint8), (RECYCLED_BYTES + 1,))])
    large.take()
    assert all(kept is None for *_, kept in large._places)
    small = Results([SMALL, SMALL])
    small.take()
    assert [len(kept) for *_, kept in small._places] == [1, 1]
    small.trim()
    assert [len(kept) for *_, kept in small._places] == [0, 0]


def test_threads_never_get_the_same_memory():
    results = Results([SMALL])
    wrong = []

    def work(own):
        for _ in range(2000):
            (array,) = results.take()
            array[...] = own
            if not (array == own).all():
                wrong.append(own)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
