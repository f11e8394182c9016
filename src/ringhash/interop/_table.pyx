# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, binding=False, always_allow_keywords=False, embedsignature=False
# cython: freethreading_compatible=True
"""A space of any width up to 64 bits, cut into stretches that have an owner: key -> hash -> owner.

    key --read--> bytes --hash--> up to 64 bits --modulus--> position --index--> stretch --> owner

This file knows no program, only widths: `Keys` is a hash, a modulus and the marks of a hash tag;
`Table` adds sorted inclusive ends, each with the index of its owner. In front of the ends stands an
index by the upper bits of the position, so that a lookup compares about one end.
"""
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_Check, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM
from cpython.unicode cimport PyUnicode_Check, PyUnicode_CheckExact
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy

from ringhash._core cimport Answering
from ringhash.interop._hashes cimport (
    cassandra_murmur3, crc32, crc32_15, crc32_word, envoy_murmur2, fill_crc_table, fnv1_32,
    fnv1_64, fnv1a_32, fnv1a_64, haproxy_crc32_full, haproxy_djb2, haproxy_djb2_full,
    haproxy_full, haproxy_sdbm, haproxy_sdbm_full, haproxy_wt6, haproxy_wt6_full,
    hash_function, hsieh, jenkins, kafka_fnv1a, kafka_murmur2, murmur, murmur3, murmur3_32,
    one_at_a_time, twemproxy_crc16,
    xxh64,
)

import numpy as np

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    bint PyUnicode_IS_COMPACT_ASCII(object)
    void* PyUnicode_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    uint64_t PyLong_AsUnsignedLongLong(object) except? 0xFFFFFFFFFFFFFFFF
    object PyObject_CallOneArg(object, object)
    ctypedef struct PyTypeObject:
        pass
    ctypedef struct PyMethodDef:
        pass
    ctypedef struct PyMethodDescrObject:
        PyMethodDef* d_method
    object PyDescr_NewMethod(PyTypeObject*, PyMethodDef*)


cdef class Hash:
    """One of the compiled hashes; called with bytes or str, it gives an int."""

    cdef hash_function function
    cdef readonly str name

    def __call__(self, data):
        cdef const char* text
        cdef Py_ssize_t size
        if PyUnicode_Check(data):
            text = PyUnicode_AsUTF8AndSize(data, &size)
            return self.function(<const uint8_t*>text, size)
        if not PyBytes_Check(data):
            data = bytes(data)
        return self.function(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    def __repr__(self):
        return f"<hash {self.name}>"


cdef Hash named(str name, hash_function function):
    cdef Hash one = Hash.__new__(Hash)
    one.name = name
    one.function = function
    return one


fill_crc_table()
COMPILED = {one.name: one for one in (
    named("sdbm", haproxy_sdbm), named("sdbm-avalanche", haproxy_sdbm_full),
    named("djb2", haproxy_djb2), named("djb2-avalanche", haproxy_djb2_full),
    named("wt6", haproxy_wt6), named("wt6-avalanche", haproxy_wt6_full),
    named("one_at_a_time", one_at_a_time), named("fnv1_64", fnv1_64), named("fnv1a_64", fnv1a_64),
    named("fnv1_32", fnv1_32), named("fnv1a_32", fnv1a_32), named("murmur", murmur),
    named("murmur3", murmur3),
    named("jenkins", jenkins), named("hsieh", hsieh), named("twemproxy-crc16", twemproxy_crc16),
    named("kafka-murmur2", kafka_murmur2), named("kafka-fnv1a", kafka_fnv1a),
    named("crc32", crc32), named("crc32-avalanche", haproxy_crc32_full), named("crc32-15", crc32_15),
    named("xxh64", xxh64), named("envoy-murmur2", envoy_murmur2),
    named("cassandra-murmur3", cassandra_murmur3),
)}


def avalanche(uint32_t value):
    """HAProxy's full_hash of one number."""
    return haproxy_full(value)


def crc32_chain(uint32_t base, Py_ssize_t count):
    """`count` numbers, as uint64: each the CRC-32 of the bytes of which `base` is the CRC-32, and behind
    them the number before, from 0 on, as 4 bytes, little endian."""
    out = np.empty(count, np.uint64)
    cdef uint64_t[::1] target = out
    cdef Py_ssize_t k
    cdef uint32_t value = 0
    for k in range(count):
        value = ~crc32_word(~base, value)
        target[k] = value
    return out


def highest(tuple prefixes not None, bytes key not None):
    """The index of the prefix for which the MurmurHash3 of prefix + key is the greatest; the first of
    equal ones. Rendezvous hashing, as pymemcache has it."""
    cdef Py_ssize_t k, size, winner = -1, longest = 0, length = PyBytes_GET_SIZE(key)
    cdef uint32_t score, best = 0
    cdef bytes prefix
    cdef uint8_t* text
    for prefix in prefixes:
        longest = max(longest, PyBytes_GET_SIZE(prefix))
    text = <uint8_t*>PyMem_RawMalloc(longest + length + 1)
    if text is NULL:
        raise MemoryError(f"no {longest + length} bytes for a key")
    for k in range(len(prefixes)):
        prefix = prefixes[k]
        size = PyBytes_GET_SIZE(prefix)
        memcpy(text, PyBytes_AS_STRING(prefix), size)
        memcpy(text + size, PyBytes_AS_STRING(key), length)
        score = murmur3_32(text, size + length, 0)
        if winner < 0 or score > best:
            winner, best = k, score
    PyMem_RawFree(text)
    return winner


cdef class Keys:
    """How a key becomes a position: a hash, perhaps a remainder, perhaps only a part of the key."""

    cdef readonly str hash_name
    cdef object call
    cdef hash_function direct
    cdef readonly uint64_t modulus
    cdef readonly object hash_tag
    cdef int opening
    cdef int closing

    def _set_keys(self, str name not None, call, uint64_t modulus, hash_tag):
        if self.call is not None:
            raise TypeError("a key space is immutable")
        self.hash_name = name
        self.direct = (<Hash>call).function if isinstance(call, Hash) else NULL
        self.modulus = modulus
        self.hash_tag = hash_tag
        self.opening, self.closing = hash_tag.encode() if hash_tag else (-1, -1)
        self.call = call

    cdef inline bint narrow(self, const uint8_t** data, Py_ssize_t* size) noexcept nogil:
        """Keep what stands between the first opening mark and the first closing one after it."""
        cdef const uint8_t* first = <const uint8_t*>memchr(data[0], self.opening, size[0])
        cdef const uint8_t* last
        if first is NULL:
            return False
        first += 1
        last = <const uint8_t*>memchr(first, self.closing, size[0] - (first - data[0]))
        if last is NULL or last == first:
            return False
        data[0] = first
        size[0] = last - first
        return True

    cdef inline int place(self, object key, const uint8_t* data, Py_ssize_t size,
                          uint64_t* position) except -1:
        """Hash the bytes; `key` is an object that holds just them, or None."""
        cdef uint64_t value
        if self.opening >= 0 and self.narrow(&data, &size):
            key = None
        if self.direct is not NULL:
            value = self.direct(data, size)
        else:
            if key is None:
                key = PyBytes_FromStringAndSize(<const char*>data, size)
            value = PyLong_AsUnsignedLongLong(PyObject_CallOneArg(self.call, key))
        position[0] = value % self.modulus if self.modulus else value
        return 0

    cdef inline int position_of(self, object key, uint64_t* position) except -1:
        cdef Py_ssize_t size
        cdef const char* text
        if PyUnicode_CheckExact(key) and PyUnicode_IS_COMPACT_ASCII(key):
            return self.place(None, <const uint8_t*>PyUnicode_DATA(key), PyUnicode_GET_LENGTH(key),
                              position)
        if PyBytes_CheckExact(key):
            return self.place(key, <const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key),
                              position)
        if PyUnicode_Check(key):
            text = PyUnicode_AsUTF8AndSize(key, &size)
            return self.place(None, <const uint8_t*>text, size, position)
        if PyBytes_Check(key):
            return self.place(None, <const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key),
                              position)
        if isinstance(key, (bytearray, memoryview)):
            key = bytes(key)
            return self.place(key, <const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key),
                              position)
        kind = type(key)
        raise TypeError("a key must be str, bytes, bytearray or memoryview, the text that the program "
                        f"sees, not {'' if kind.__module__ == 'builtins' else kind.__module__ + '.'}"
                        f"{kind.__qualname__}")

    def position(self, key):
        """position($self, key, /)
--

Return the position of `key` in the space of the program.

Args and errors as for `owner`.

>>> from ringhash.interop import RedisSlots
>>> RedisSlots({"a": range(16384)}).space.position("{user1000}.following")
3443
"""
        cdef uint64_t position
        self.position_of(key, &position)
        return position

    def _key_bytes(self, key):
        """The bytes that count: a key's UTF-8, or what stands between the marks of a hash tag in it."""
        cdef uint64_t position
        cdef bytes data
        cdef const uint8_t* start
        cdef Py_ssize_t size
        self.position_of(key, &position)  # raises for what is no key
        data = key.encode() if isinstance(key, str) else bytes(key)
        start, size = <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
        if self.opening >= 0 and self.narrow(&start, &size):
            return PyBytes_FromStringAndSize(<const char*>start, size)
        return data

    def _positions(self, keys):
        """Positions of many keys, as uint64; `keys` is what `texts` returns."""
        cdef tuple many = tuple(keys)
        cdef Py_ssize_t k, count = len(many)
        out = np.empty(count, np.uint64)
        cdef uint64_t[::1] target = out
        for k in range(count):
            self.position_in(many, k, &target[k])
        return out

    cdef int position_in(self, tuple keys, Py_ssize_t k, uint64_t* position) except -1:
        try:
            return self.position_of(<object>PyTuple_GET_ITEM(keys, k), position)
        except (TypeError, ValueError, ArithmeticError) as error:
            error.add_note(f"This was key {k} of {len(keys)}.")
            raise


cdef class Table(Answering):
    """Names, and the stretches of a space that they own. Immutable once `_set_table` was called."""

    cdef readonly Keys space
    cdef bint drops_empty      # the program places an empty key in another way
    cdef readonly tuple names
    cdef Py_ssize_t size
    cdef bint wide
    cdef int shift
    cdef void* memory
    cdef uint32_t* starts
    cdef uint64_t* ends        # a narrow space: the end << 32 | its owner, so that one line has both
    cdef int32_t* owners       # a wide space
    cdef readonly Py_ssize_t memory_size

    def __dealloc__(self):
        PyMem_RawFree(self.memory)

    def _set_table(self, Keys space not None, tuple names not None, const uint64_t[::1] ends,
                   const int32_t[::1] owners, bint drops_empty=False):
        """Take `ends`, sorted and distinct, whose last is the last position, and who owns up to each;
        -1 is nobody."""
        cdef Py_ssize_t k, count = ends.shape[0], bits, buckets
        cdef uint64_t last, bucket = 0
        if self.memory is not NULL:
            raise TypeError("a table is immutable")
        if count == 0 or owners.shape[0] != count or count >= 1 << 31:
            raise ValueError("a table needs an owner for each end")
        last = ends[count - 1]
        bits = max(0, int(last).bit_length() - int(count - 1).bit_length())
        if bits > 63:
            bits = 63
        buckets = (last >> bits) + 1
        self.wide = last >> 32 != 0
        self.memory_size = count * (12 if self.wide else 8) + (buckets + 1) * 4
        self.memory = PyMem_RawMalloc(self.memory_size)
        if self.memory is NULL:
            raise MemoryError(f"no {self.memory_size} bytes for a table of {count} stretches")
        self.ends = <uint64_t*>self.memory
        self.owners = <int32_t*>(self.ends + count)
        self.starts = <uint32_t*>(self.owners + count) if self.wide else <uint32_t*>self.owners
        self.shift = bits
        for k in range(count):
            if self.wide:
                self.ends[k] = ends[k]
                self.owners[k] = owners[k]
            else:
                self.ends[k] = (ends[k] << 32) | <uint32_t>owners[k]
            while bucket <= ends[k] >> bits:
                self.starts[bucket] = <uint32_t>k
                bucket += 1
        self.starts[buckets] = <uint32_t>(count - 1)
        self.names = names
        self.drops_empty = drops_empty
        self.size = count
        self.space = space

    cdef inline int32_t find(self, uint64_t position) noexcept nogil:
        cdef uint64_t bucket = position >> self.shift
        cdef uint32_t low = self.starts[bucket], high = self.starts[bucket + 1], half
        # An end << 32 | owner is at least position << 32 just when the end is at least the position.
        cdef uint64_t least = position if self.wide else position << 32
        while high - low > 8:
            half = (low + high) >> 1
            if self.ends[half] < least:
                low = half + 1
            else:
                high = half
        while low < high and self.ends[low] < least:
            low += 1
        return self.owners[low] if self.wide else <int32_t>self.ends[low]

    cdef inline int32_t index_of(self, object key) except -2:
        cdef uint64_t position
        if self.space is None:
            self._fail_no_table()
        self.space.position_of(key, &position)
        return -1 if self.drops_empty and not len(key) else self.find(position)

    cdef object owner_of(self, object key):
        cdef int32_t owner = self.index_of(key)
        if owner < 0:
            self._fail_unplaced(key)
        return <object>PyTuple_GET_ITEM(self.names, owner)

    def _fail_unplaced(self, key):
        raise LookupError(f"the key {key!r} has no owner")

    def _fail_no_table(self):
        raise TypeError("the table was not set")

    def owner(self, key):
        """owner($self, key, /)
--

Return the name of the server that the program sends `key` to, as it was given.

Args:
    key: str (its UTF-8), bytes, bytearray or memoryview: the text that the program hashes.

Raises:
    UnplacedKeyError: The program does not place this key by its hash.
    TypeError: The key is of another type. A number is what the program sees as text: write str(key).

Thread-safe. Cost: one hash, and about one comparison whatever the number of points.

>>> from ringhash.interop import NginxRing
>>> NginxRing(["10.0.0.1:80", "10.0.0.2:80"]).owner("/index.html")
'10.0.0.1:80'
"""
        return self.owner_of(key)

    def __getitem__(self, key):
        """As `owner(key)`, and a little faster."""
        return self.owner_of(key)

    def _indexes(self, keys):
        """Owners of many keys, as indexes into `names`; -1 is nobody."""
        cdef tuple many = tuple(keys)
        cdef Py_ssize_t k, count = len(many)
        out = np.empty(count, np.intp)
        cdef Py_ssize_t[::1] target = out
        for k in range(count):
            try:
                target[k] = self.index_of(<object>PyTuple_GET_ITEM(many, k))
            except (TypeError, ValueError, ArithmeticError) as error:
                error.add_note(f"This was key {k} of {count}.")
                raise
        return out

    def _owners(self, keys):
        """Owners of many keys, as names."""
        cdef tuple many = tuple(keys)
        cdef const Py_ssize_t[::1] indexes = self._indexes(many)
        cdef Py_ssize_t k, count = indexes.shape[0]
        cdef list names = PyList_New(count)
        cdef object name
        for k in range(count):
            if indexes[k] < 0:
                self._fail_unplaced(many[k])
            name = <object>PyTuple_GET_ITEM(self.names, indexes[k])
            Py_INCREF(name)
            PyList_SET_ITEM(names, k, name)
        return names

    def __sizeof__(self):
        return type(self).__basicsize__ + self.memory_size


cdef object method_descriptor = type(str.upper)


def own_methods(cls):
    """Give `cls` a descriptor of its own for the `owner` that it inherits from a compiled class: the
    interpreter calls a method at full speed only on exactly the class it belongs to."""
    inherited = cls.owner
    if type(inherited) is method_descriptor:
        cls.owner = PyDescr_NewMethod(<PyTypeObject*>cls, (<PyMethodDescrObject*>inherited).d_method)
    return cls
