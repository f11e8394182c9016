# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, binding=False, always_allow_keywords=False, embedsignature=False
# cython: freethreading_compatible=True
"""The compiled core: key bytes -> hash -> position -> owner, batches, merge, diff, snapshots.

Arithmetic on arrays, no input or output and no policy: what a node is, what an error says and
which changes are allowed is Python, one level up.

    key --read--> bytes --XXH3--> 64 bits --the upper 32--> position --cell--> node index --> name
         (_keys)         (_xxh3)                                       (_cells)

`HashSpace` knows how a key becomes a position. What names owners is `Answering`: `Table`, the points
of a ring, `ShardTable`, and the tables of other compiled modules. Each is immutable, and so is a
`Snapshot`: a table, and some entries of keys with an owner of their own. A change makes a new one.
`LiveLookup` is one reference to the snapshot of the moment; a router is one, so that its lookups
enter no Python frame.

A method that takes one key is METH_O, and str, bytes and int of exactly that type are read without
a call. Everything else goes through `HashSpace.slow_read`.
"""
cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.list cimport PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_AsUnsignedLongLong, PyLong_Check
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_Check, PyUnicode_Compare
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from ringhash._cells cimport (
    CELL, NARROW_NODES, Points, buckets_for, cell_size, fill_cells, find, find_in,
    lower_bound, nearest, owner_from, prefetch, prefetch_cell, starts_size,
)
from ringhash._merge cimport (
    GONE, NO_NODE, Arc, Span, changed_arcs, hash_points, merge, patch_cells, place_keys, sort_keys,
)
from ringhash._columns cimport (
    BLOCK, OTHER, PADDED, SIGNED, UNSIGNED, UUIDS, Array, Column, Schema, Stream, Texts, add_text, bind,
    describe, first_null, hash_texts, narrow, position_of_bytes as hash_position, read_column,
    read_item,
)
from ringhash._xxh3 cimport (
    rare, read32, read64, write64, xxh3_64 as hash_bytes, xxh3_word,
)

import sys

import numpy as np

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    bint PyBool_Check(object)
    bint PyIndex_Check(object)
    Py_ssize_t clipped_size "PyNumber_AsSsize_t"(object, PyObject*) except? -1
    # On borrowed references: a key of a batch is read without touching its reference count.
    bint is_str "PyUnicode_CheckExact"(PyObject*)
    bint is_ascii "PyUnicode_IS_COMPACT_ASCII"(PyObject*)
    void* str_data "PyUnicode_DATA"(PyObject*)
    Py_ssize_t str_size "PyUnicode_GET_LENGTH"(PyObject*)
    bint is_bytes "PyBytes_CheckExact"(PyObject*)
    char* bytes_data "PyBytes_AS_STRING"(PyObject*)
    Py_ssize_t bytes_size "PyBytes_GET_SIZE"(PyObject*)
    bint is_int "PyLong_CheckExact"(PyObject*)
    long long int_value "PyLong_AsLongLongAndOverflow"(PyObject*, int*) except? -1
    ctypedef struct PyTypeObject:
        pass
    ctypedef struct PyMethodDef:
        pass
    ctypedef struct PyMethodDescrObject:
        PyMethodDef* d_method
    object PyDescr_NewMethod(PyTypeObject*, PyMethodDef*)

cdef enum:
    FAR_POINTS = 50000  # from here on the cells of a block are asked of the memory beforehand
    LARGE = 4194304    # bytes from which on a table asks for large pages
    FEW = 16           # owners that are told apart by comparing them with each other

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define RINGHASH_HAS_GIL 0
    #else
    #define RINGHASH_HAS_GIL 1
    #endif
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    /* Ask for large pages: a lookup in a big ring misses the cache of page addresses otherwise. */
    static void ringhash_large_pages(void *memory, size_t size) {
    #if defined(__linux__) && defined(MADV_HUGEPAGE)
        const size_t page = (size_t)1 << 21;
        uintptr_t begin = ((uintptr_t)memory + page - 1) & ~(uintptr_t)(page - 1);
        uintptr_t end = ((uintptr_t)memory + size) & ~(uintptr_t)(page - 1);
        if (begin < end) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
    #else
        (void)memory;
        (void)size;
    #endif
    }
    #define ringhash_tuple_items(items) (((PyTupleObject *)(items))->ob_item)
    #define ringhash_list_items(items) (((PyListObject *)(items))->ob_item)
    """
    bint HAS_GIL "RINGHASH_HAS_GIL"
    PyObject** tuple_items "ringhash_tuple_items"(tuple)
    PyObject** list_items "ringhash_list_items"(list)
    void large_pages "ringhash_large_pages"(void*, size_t)

MAX_POINTS = 2**27
CELL_CODE = CELL.decode()

cdef object Integer = np.integer


include "_keys.pxi"
include "_batch.pxi"
include "_table.pxi"
include "_change.pxi"
include "_walk.pxi"
include "_shards.pxi"
include "_entries.pxi"
include "_snapshot.pxi"
include "_loads.pxi"


_COMPILED_METHOD = type(str.join)


def own_methods(cls):
    """Give `cls` descriptors of its own for the lookups of one key that it inherits from a compiled
    class: the interpreter calls a method at full speed only on exactly the class it belongs to."""
    cdef object inherited
    for name in ("acquire", "owner", "owners", "position", "walk"):
        inherited = getattr(cls, name, None)
        if type(inherited) is _COMPILED_METHOD:  # a class may have something else by that name
            setattr(cls, name, PyDescr_NewMethod(
                <PyTypeObject*>cls, (<PyMethodDescrObject*>inherited).d_method))
    return cls


def xxh3_64(data, uint64_t seed=0):
    """XXH3, 64 bits, of a bytes-like object."""
    cdef Py_buffer view
    cdef uint64_t value
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    value = hash_bytes(<const uint8_t*>view.buf, view.len, seed)
    PyBuffer_Release(&view)
    return value
