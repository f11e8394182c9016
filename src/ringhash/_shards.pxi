# A part of _core.pyx: the owner of a fixed shard.

cdef class ShardTable(HashSpace):
    """Which node has which shard: the shard of a key is its position modulo their number.

    Args: `names` of the nodes, `owners` the index of a name for each shard (-1: nobody has it),
    `seed` and `hash_tags` of the shards. Immutable. 4 bytes a shard.
    """

    cdef readonly tuple names
    cdef PyObject** name_of
    cdef object array          # of int32, nobody else's
    cdef const int32_t* owners
    cdef readonly uint32_t count

    def __cinit__(self, tuple names not None, owners, uint64_t seed=0, bint hash_tags=False):
        cdef const int32_t[::1] view
        given = np.asarray(owners)
        if given.ndim != 1 or given.dtype.kind not in "iu" or not 1 <= len(given) < 1 << 32:
            raise ValueError("owners must be a list of integers with one dimension, "
                             "from 1 to 2**32 - 1 of them, "
                             f"not of the shape {given.shape} and type {given.dtype}")
        if given.min() < -1 or given.max() >= len(names):
            raise ValueError(f"owners must be indexes of the {len(names)} names, or -1")
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"a name must be a str, not {type(name).__name__}")
        self.array = view = np.array(given, np.int32)
        self.owners = &view[0]
        self.count = <uint32_t>view.shape[0]
        self.names = names
        self.name_of = tuple_items(names)
        self.seed = seed
        self.hash_tags = hash_tags

    def __init__(self, *args, **options):
        pass  # immutable, as a ring is

    cdef object owner_of(self, object key):
        return self.name_at(<uint32_t>self.position_off_path(key))

    cdef inline object name_at(self, uint32_t position):
        cdef int32_t owner = self.owners[position % self.count]
        if rare(owner < 0):
            return self._fail_owner(position % self.count)
        return <object>self.name_of[owner]

    def owner(self, key):
        """owner($self, key, /)
--

Return the name of the node that has the shard of `key`; keys and errors as for `Ring.owner`.

Thread-safe. Cost: one hash and one division.
"""
        return self.owner_of(key)

    def __getitem__(self, key):
        return self.owner_of(key)

    def position(self, key):
        """position($self, key, /)
--

Return the shard of `key`, from 0 to count - 1."""
        return <uint32_t>self.position_off_path(key) % self.count

    def owner_at(self, uint32_t position):
        """owner_at($self, position, /)
--

Return the name of the node that has the shard `position`; IndexError unless there is one."""
        if position >= self.count:
            raise IndexError(f"there is no shard {position}; the shards are 0 to {self.count - 1}")
        return self.name_at(position)

    def _fail_owner(self, shard):
        raise LookupError(f"nobody has the shard {shard}")

    def _indexes(self, Batch batch not None):
        """Owners of many keys, as indexes of `names`. Columns are read with the GIL released."""
        out = np.empty(batch.size, np.intp)
        cdef Py_ssize_t[::1] target = out
        cdef uint32_t[BLOCK] positions
        cdef Py_ssize_t done = 0, count, k
        cdef int32_t owner = 0
        batch.rewind()
        while done < batch.size:
            count = min(<Py_ssize_t>BLOCK, batch.size - done)
            batch.read(self, done, count, positions)
            for k in range(count):
                owner = self.owners[positions[k] % self.count]
                if rare(owner < 0):
                    self._fail_owner(positions[k] % self.count)
                target[done + k] = owner
            done += count
        return out

    def _owners(self, Batch batch not None):
        """Owners of many keys, as names."""
        return list_of_names(self.name_of, self._indexes(batch))

    def __sizeof__(self):
        return type(self).__basicsize__ + self.array.nbytes


cdef list list_of_names(PyObject** name_of, const Py_ssize_t[::1] indexes):
    cdef Py_ssize_t k, count = indexes.shape[0]
    cdef list names = PyList_New(count)
    cdef object name
    for k in range(count):
        name = <object>name_of[indexes[k]]
        Py_INCREF(name)
        PyList_SET_ITEM(names, k, name)
    return names
