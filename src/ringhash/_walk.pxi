# A part of _core.pyx: every node once, in the order of fail-over.

@cython.final
cdef class Walk:
    """Every node once, in the order of the ring from one key on.

    Threads may share a walk: each node is given to one of them.
    """

    cdef Table table
    cdef Py_ssize_t next_point
    cdef Py_ssize_t left
    cdef bytearray seen
    cdef object ahead          # the name of a node that comes before all others, or None

    cdef void start(self, Table table, Py_ssize_t first):
        self.table = table
        self.next_point = first
        self.left = PyTuple_GET_SIZE(table.names)
        self.seen = bytearray(self.left)

    cdef void put_ahead(self, object name):
        """Let the node of that name, of the table or not, come before all others."""
        cdef Py_ssize_t node
        for node in range(PyTuple_GET_SIZE(self.table.names)):
            if self.table.names[node] == name:
                (<unsigned char*>self.seen)[node] = 1
                self.left -= 1
        self.ahead = name

    def __iter__(self):
        return self

    def __next__(self):
        cdef object name = None
        # Two threads in here at once would count one node twice, and never come to the end.
        with cython.critical_section(self):
            name = self.next_name()
        if name is None:
            raise StopIteration
        return name

    cdef object next_name(self):
        cdef uint32_t node
        cdef unsigned char* seen = self.seen
        cdef object name
        if self.ahead is not None:
            name = self.ahead
            self.ahead = None
            return name
        while self.left:
            node = owner_from(&self.table.at, self.next_point)
            self.next_point = self.next_point + 1 if self.next_point < self.table.at.size else 1
            if not seen[node]:
                seen[node] = 1
                self.left -= 1
                return <object>self.table.name_of[node]
        return None

    def __length_hint__(self):
        with cython.critical_section(self):
            return self.left + (self.ahead is not None)
