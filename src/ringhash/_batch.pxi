# A part of _core.pyx: many keys at once, as they are read.

@cython.final
cdef class Batch:
    """Many keys to be read block by block, in order: a list or tuple of objects, or columns.

    A one-dimensional numpy array of a native integer type or of fixed-width bytes is one column,
    whatever its stride; an object with the Arrow PyCapsule interface is one for each of its arrays.
    """

    cdef Py_ssize_t size
    cdef list in_list          # one of these two, or columns
    cdef tuple in_tuple
    cdef Py_buffer view
    cdef bint has_view
    cdef object capsules       # keep what columns point to alive, as do the arrays of a stream
    cdef Array* arrays
    cdef Py_ssize_t array_count
    cdef Column* columns
    cdef Py_ssize_t column_count
    cdef Py_ssize_t column     # the place where the next block begins
    cdef Py_ssize_t row

    def __cinit__(self, keys):
        if isinstance(keys, (tuple, list)):
            if isinstance(keys, list) and HAS_GIL:
                self.in_list = keys
                self.size = len(keys)
            else:
                self.in_tuple = tuple(keys)  # which no other thread can change
                self.size = len(self.in_tuple)
        elif hasattr(keys, "__arrow_c_stream__"):
            self.add_stream(keys)
        elif hasattr(keys, "__arrow_c_array__"):
            self.add_arrow(keys)
        else:
            self.add_numpy(keys)

    def __len__(self):
        return self.size

    def __dealloc__(self):
        cdef Py_ssize_t k
        if self.has_view:
            PyBuffer_Release(&self.view)
        for k in range(self.array_count):
            if self.arrays[k].release is not NULL:
                self.arrays[k].release(&self.arrays[k])
        free(self.arrays)
        free(self.columns)

    cdef int add_numpy(self, object keys) except -1:
        cdef Column* column
        PyObject_GetBuffer(keys, &self.view, PyBUF_FORMAT | PyBUF_STRIDES)
        self.has_view = True
        if self.view.ndim != 1:
            raise ValueError(f"a column has one dimension, not {self.view.ndim}")
        self.reserve_columns(1)
        column = &self.columns[0]
        column.kind = {"i": SIGNED, "u": UNSIGNED, "S": PADDED}[keys.dtype.kind]
        column.items = <const uint8_t*>self.view.buf
        column.size = self.view.shape[0]
        column.stride = self.view.strides[0]
        column.width = self.view.itemsize
        self.add_column()
        return 0

    cdef int add_arrow(self, object keys) except -1:
        cdef Schema* schema
        cdef Array* array
        schema_capsule, array_capsule = self.capsules = keys.__arrow_c_array__()
        schema = <Schema*>PyCapsule_GetPointer(schema_capsule, "arrow_schema")
        array = <Array*>PyCapsule_GetPointer(array_capsule, "arrow_array")
        if schema.release is NULL or array.release is NULL:
            raise ValueError("the Arrow array has been handed over to somebody else already")
        self.reserve_columns(1)
        self.describe_column(schema)
        self.bind_column(array)
        return 0

    cdef int add_stream(self, object keys) except -1:
        cdef Stream* stream
        cdef Schema schema
        cdef Array* arrays
        self.capsules = keys.__arrow_c_stream__()
        stream = <Stream*>PyCapsule_GetPointer(self.capsules, "arrow_array_stream")
        if stream.release is NULL:
            raise ValueError("the Arrow stream has been handed over to somebody else already")
        if stream.get_schema(stream, &schema):
            raise stream_error(stream)
        try:
            while True:
                arrays = <Array*>realloc(self.arrays, (self.array_count + 1) * sizeof(Array))
                if arrays is NULL:
                    raise MemoryError("no memory to read an Arrow stream")
                self.arrays = arrays
                arrays[self.array_count].release = NULL
                if stream.get_next(stream, &arrays[self.array_count]):
                    raise stream_error(stream)
                if arrays[self.array_count].release is NULL:
                    break
                self.array_count += 1
                self.reserve_columns(self.array_count)
                self.describe_column(&schema)
                self.bind_column(&arrays[self.array_count - 1])
            if not self.array_count:
                self.reserve_columns(1)
                self.describe_column(&schema)
        finally:
            schema.release(&schema)
        return 0

    cdef int reserve_columns(self, Py_ssize_t count) except -1:
        cdef Column* columns = <Column*>realloc(self.columns, count * sizeof(Column))
        if columns is NULL:
            raise MemoryError("no memory for columns of keys")
        self.columns = columns
        return 0

    cdef int describe_column(self, Schema* schema) except -1:
        describe(schema, &self.columns[self.column_count])
        if self.columns[self.column_count].kind == OTHER:
            raise UnreadableColumnError(schema.format.decode())
        return 0

    cdef int bind_column(self, Array* array) except -1:
        cdef Py_ssize_t null = first_null(array)
        if null < array.length:
            raise TypeError(f"a key must not be null, and key {self.size + null} is")
        bind(array, &self.columns[self.column_count])
        self.add_column()
        return 0

    cdef void add_column(self) noexcept:
        self.size += self.columns[self.column_count].size
        self.column_count += 1

    cdef void rewind(self) noexcept:
        self.column = self.row = 0

    cdef inline bint is_columns(self) noexcept nogil:
        return self.columns is not NULL

    cdef int read(self, HashSpace space, Py_ssize_t begin, Py_ssize_t count,
                  uint32_t* positions) except -1:
        """Write the positions of the next `count` keys, which begin at `begin`."""
        if self.is_columns():
            with nogil:
                self.read_columns(space, count, positions)
        else:
            self.read_objects(space, begin, count, positions)
        return 0

    cdef void read_columns(self, HashSpace space, Py_ssize_t count,
                           uint32_t* positions) noexcept nogil:
        cdef Column* column
        cdef Py_ssize_t part
        while count:
            column = &self.columns[self.column]
            part = min(count, column.size - self.row)
            read_column(column, self.row, part, space.seed, space.hash_tags, positions)
            positions += part
            count -= part
            self.row += part
            if self.row == column.size:
                self.column += 1
                self.row = 0

    cdef inline PyObject** items(self, Py_ssize_t begin, Py_ssize_t count) except NULL:
        """Borrowed keys; they are good until Python code runs."""
        if self.in_list is None:
            return tuple_items(self.in_tuple) + begin
        if begin + count > PyList_GET_SIZE(self.in_list):
            raise RuntimeError("the list of keys became shorter while it was read")
        return list_items(self.in_list) + begin

    cdef int read_objects(self, HashSpace space, Py_ssize_t begin, Py_ssize_t count,
                          uint32_t* positions) except -1:
        cdef Py_ssize_t k = 0
        cdef PyObject** keys = self.items(begin, count)
        cdef PyObject* key
        cdef Texts texts
        texts.short_count = texts.long_count = 0
        try:
            for k in range(count):
                key = keys[k]
                if k + 12 < count:
                    prefetch(keys[k + 12])
                    prefetch(<char*>keys[k + 12] + 64)
                if is_str(key) and is_ascii(key):
                    add_text(&texts, k, str_data(key), str_size(key))
                elif is_bytes(key):
                    add_text(&texts, k, bytes_data(key), bytes_size(key))
                else:
                    hash_texts(&texts, space.seed, space.hash_tags, positions)
                    positions[k] = <uint32_t>space.position_off_path(<object>key)
                    keys = self.items(begin, count)
        except (TypeError, ValueError, OverflowError) as error:
            error.add_note(f"This was key {begin + k} of {self.size}.")
            raise
        hash_texts(&texts, space.seed, space.hash_tags, positions)
        return 0


class UnreadableColumnError(Exception):
    """An Arrow column is of a type that is not read in place; its argument is the format."""


cdef object stream_error(Stream* stream):
    cdef const char* reason = stream.get_last_error(stream)
    return OSError("the Arrow stream failed"
                   + (f": {reason.decode(errors='replace')}" if reason is not NULL else ""))
