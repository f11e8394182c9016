# A part of _core.pyx: how much each node holds, and the first node with room.

@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class _Slot:
    """What one node holds. It outlives the node for as long as it holds something."""

    cdef readonly str name
    cdef readonly int64_t held
    cdef double weight         # as in the table that serves now
    cdef bint serves           # whether it is of that table: neither gone nor down
    cdef int64_t seen_by       # the last walk that passed it


@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class _Total:
    """What all nodes hold together; and the lock of all counts."""

    cdef int64_t held
    cdef int64_t serving       # of it, what is held by the nodes of the table that serves now


cdef class Loads:
    """How much each node holds, and the walk from a key to the first node with room.

        room in a node:   held < factor * (all that is held + 1) * weight / weights

    which is the whole-number way to say that the node stays within
    ceil(factor * (held + 1) * weight / weights) with one more. All that is held, and `weights`, are of
    the nodes that serve: what one that left or is down still holds gives no room to the others. Bound
    to a `LiveLookup`: when its ring is another one, `_weights_of` (Python) tells the weights, and the
    slots go along by name.

    All counts are read and written in a critical section of `total`, in which no Python code runs:
    with a GIL it is free, without one it is the lock. Tickets know `total` and their slot alone,
    which know nothing, so that they are in no cycle and need no garbage collector.
    """

    cdef LiveLookup live
    cdef Table table           # that `slots` is for
    cdef tuple slots           # one of every node of `table`
    cdef dict slot_of          # name -> _Slot; also of nodes that left and still hold something
    cdef double weights
    cdef double factor
    cdef _Total total
    cdef int64_t acquired
    cdef int64_t elsewhere     # of them, those that did not get the first node
    cdef int64_t walked        # nodes that these passed
    cdef int64_t farthest      # most nodes that one of these passed
    cdef int64_t walks         # serial number, for `_Slot.seen_by`

    def __cinit__(self, LiveLookup live not None, double factor):
        self.live = live
        self.factor = factor
        self.total = _Total()
        self.table = NO_TABLE
        self.slots = ()
        self.slot_of = {}

    @property
    def held(self):
        """What all nodes hold together."""
        return self.total.held

    cdef int follow(self, Table table) except -1:
        """Let the slots be those of `table`. Another thread may change them again."""
        cdef list weights = self._weights_of(table)
        with cython.critical_section(self.total):
            if table is not self.table:
                self.adopt(table, weights)
        return 0

    cdef int adopt(self, Table table, list weights) except -1:
        cdef dict old = self.slot_of
        cdef dict slot_of = {name: slot for name, slot in old.items() if (<_Slot>slot).held}
        cdef list slots = []
        cdef double total = 0.0
        cdef _Slot slot
        for name, weight in zip(table.names, weights, strict=True):
            slot = old.get(name)
            if slot is None:
                slot = _Slot()
                slot.name = name
            slot.weight = weight
            total += slot.weight
            slot_of[name] = slot
            slots.append(slot)
        for slot in old.values():
            slot.serves = False
        self.total.serving = 0
        for slot in slots:
            slot.serves = True
            self.total.serving += slot.held
        self.weights = total
        self.slots = tuple(slots)
        self.slot_of = slot_of
        self.table = table
        return 0

    def _weights_of(self, table):
        raise NotImplementedError

    def _fail_walk(self, placement):
        raise TypeError(f"loads are bounded along a walk, and {type(placement).__name__} has none")

    def _fail_room(self, avoid):
        raise LookupError("there is no node with room")

    cdef inline bint has_room(self, _Slot slot, int64_t held, double weights) noexcept:
        return slot.held < self.factor * <double>(held + 1) * slot.weight / weights

    cdef inline _Slot slot_at(self, Py_ssize_t point):
        return <_Slot>PyTuple_GET_ITEM(self.slots, owner_from(&self.table.at, point))

    def acquire(self, key, avoid=None):
        """acquire($self, key, avoid=None)
--

Take a place for `key` at the first node with room, clockwise from its owner, and return a ticket.

Args:
    key: As for `Router.owner`.
    avoid: Names of nodes to pass, such as those that a request has been refused by. The others
        then share the load as if these were down; names that are no node do nothing.

Returns:
    A `Ticket`: `ticket.node` is where to go, and `ticket.release()` gives the place back. It is a
    context manager too. Nothing else gives it back: a ticket that is lost is held for ever.

Raises:
    NoNodeAvailableError: Every node is down, or none is left that is not to be avoided.
    EmptyRingError, TypeError, OverflowError: As `Router.owner` does.

Thread-safe. Cost: with `release`, two to three times that of `owner`; the walk looks at
O(1 / (factor - 1)**2) nodes on average.
Method: Mirrokni, Thorup, Zadimoghaddam: Consistent Hashing with Bounded Loads (2017).

>>> from ringhash import Router
>>> from ringhash.balance import BoundedRouter
>>> bounded = BoundedRouter(Router(["gw-1", "gw-2"]))
>>> with bounded.acquire("user:7") as ticket:
...     ticket.node, bounded.held
('gw-1', 1)
>>> bounded.held
0
"""
        cdef Snapshot now = self.live.current()
        cdef Table table = now.ring
        cdef uint32_t position
        cdef object pin = None
        cdef Ticket ticket
        cdef bint done = False
        # All that may run Python code, or let another thread run, comes first.
        if rare(table is None):
            self._fail_walk(now.table)
        if rare(now.entries is not None):
            pin = now.pinned(key)
        position = <uint32_t>table.position_of(<PyObject*>key)
        if rare(table.at.size == 0):
            table._fail_empty()
        if avoid is not None:
            avoid = frozenset([avoid] if isinstance(avoid, str) else avoid)
            for name in avoid:
                if type(name) is not str:
                    raise TypeError(f"avoid takes names of nodes, not {type(name).__name__}")
        ticket = Ticket.__new__(Ticket)
        ticket.total = self.total
        while not done:
            if rare(table is not self.table):
                self.follow(table)
            with cython.critical_section(self.total):
                if table is self.table:
                    self.take(ticket, find(&table.at, position), position, pin, avoid)
                    done = True
        if rare(ticket.slot is None):
            self._fail_room(avoid)
        return ticket

    cdef int take(self, Ticket ticket, uint32_t owner, uint32_t position, str pin,
                  frozenset avoid) except -1:
        """Give `ticket` a slot, or None when every slot with room is in `avoid`."""
        cdef _Slot slot
        cdef int64_t passed = 0
        cdef Py_ssize_t point, steps
        cdef double weights = self.weights
        cdef int64_t held = self.total.serving
        if rare(avoid is not None):  # as if these were down
            weights = 0.0
            held = 0
            for slot in self.slots:
                if slot.name not in avoid:
                    weights += slot.weight
                    held += slot.held
        slot = <_Slot>PyTuple_GET_ITEM(self.slots, owner)
        if rare(pin is not None):
            slot = self.slot_of.get(pin, slot)
            if not slot.serves:
                slot = <_Slot>PyTuple_GET_ITEM(self.slots, owner)
        if rare(avoid is not None or not self.has_room(slot, held, weights)):
            self.walks += 1
            point = lower_bound(&self.table.at, position)
            steps = 0
            while avoid is not None and slot.name in avoid or not self.has_room(slot, held, weights):
                passed += slot.seen_by != self.walks
                slot.seen_by = self.walks
                if steps == self.table.at.size:
                    return 0
                slot = self.slot_at(point)
                point = point + 1 if point < self.table.at.size else 1
                steps += 1
        ticket.slot = slot
        slot.held += 1
        self.total.held += 1
        self.total.serving += 1
        self.acquired += 1
        if rare(passed):
            self.elsewhere += 1
            self.walked += passed
            self.farthest = max(self.farthest, passed)
        return 0

    def _report(self):
        """For every node that serves, or is gone and still holds something: name -> (what it holds,
        its room as above or None); and the counters, all of one moment."""
        cdef Snapshot now = self.live.current()
        cdef Table table = now.ring
        cdef _Slot slot
        cdef dict nodes
        if table is None:
            self._fail_walk(now.table)
        if table is not self.table:
            self.follow(table)
        with cython.critical_section(self.total):
            nodes = {name: ((<_Slot>slot).held, None) for name, slot in self.slot_of.items()}
            for slot in self.slots:
                nodes[slot.name] = (slot.held, self.factor * <double>(self.total.serving + 1)
                                    * slot.weight / self.weights)
            return nodes, self.total.held, self.acquired, self.elsewhere, self.walked, self.farthest


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Ticket:
    """A place that a key holds at a node; made by `BoundedRouter.acquire`. A context manager."""

    cdef _Total total
    cdef _Slot slot
    cdef bint released

    @property
    def node(self):
        """The name of the node that the place is at."""
        return None if self.slot is None else self.slot.name

    def release(self):
        """release($self, /)
--

Give the place back; a second time does nothing. Returns whether this was the first."""
        return self.give_back()

    cdef bint give_back(self) noexcept:
        if rare(self.total is None):  # not made by `acquire`
            return False
        with cython.critical_section(self.total):
            if self.released:
                return False
            self.released = True
            self.slot.held -= 1
            self.total.held -= 1
            self.total.serving -= self.slot.serves
        return True

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        self.give_back()
        return None

    def __reduce__(self):
        raise TypeError("a ticket cannot be copied or pickled: its place is given back once")

    def __repr__(self):
        return f"<Ticket for {self.node!r}{', released' if self.released else ''}>"
