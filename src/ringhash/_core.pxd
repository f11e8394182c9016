"""What other compiled modules of ringhash share with the core."""


cdef class Answering:
    """What names the owner of a key; base of every compiled table."""

    cdef object owner_of(self, object key)
