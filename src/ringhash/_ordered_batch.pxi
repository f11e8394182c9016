# A part of _ordered.pyx: many keys at once, block by block, as texts that point to their bytes.

cdef enum:
    BLOCK = 64
    WORD = 16       # bytes of the longest key that is not text


@cython.final
cdef class Reader:
    """Many keys: a list or tuple, or a one-dimensional numpy array of native integers or bytes."""

    cdef Shape shape
    cdef Py_ssize_t size, done
    cdef bint in_place
    cdef object keys
    cdef bint is_list
    cdef list kept              # what was made for the keys of a block
    cdef Py_buffer view
    cdef bint has_view
    cdef bint is_signed
    cdef uint8_t[BLOCK * WORD] words

    def __cinit__(self, Shape shape, keys):
        self.shape = shape
        self.kept = []
        self.keys = keys
        if isinstance(keys, (list, tuple)):
            self.keys = tuple(keys)  # no other thread changes it, and its keys stay alive
            self.size = len(keys)
            return
        kind = keys.dtype.kind
        needed = INT if kind in "iu" else BYTES
        if shape.plain != needed:
            raise TypeError(f"the keys of this map are {shape}, and an array of {keys.dtype} holds none")
        PyObject_GetBuffer(keys, &self.view, PyBUF_FORMAT | PyBUF_STRIDES)
        self.has_view = self.in_place = True
        self.is_signed = kind == "i"
        self.size = self.view.shape[0]

    def __dealloc__(self):
        if self.has_view:
            PyBuffer_Release(&self.view)

    cdef Py_ssize_t next_columns(self, Text* texts) noexcept nogil:
        cdef Py_ssize_t count = min(<Py_ssize_t>BLOCK, self.size - self.done), k, size
        cdef Py_ssize_t stride = self.view.strides[0], width = self.view.itemsize
        cdef const uint8_t* item = <const uint8_t*>self.view.buf + self.done * stride
        cdef uint8_t* word = self.words
        self.done += count
        if self.shape.plain == BYTES:
            for k in range(count):
                size = width
                while size and item[size - 1] == 0:
                    size -= 1
                texts[k].data = item
                texts[k].size = size
                item += stride
            return count
        for k in range(count):
            texts[k].data = word
            texts[k].size = 9
            if self.is_signed:
                write_signed(word, (<const int64_t*>item)[0] if width == 8
                             else <int64_t>(<const int32_t*>item)[0] if width == 4
                             else <int64_t>(<const int16_t*>item)[0] if width == 2
                             else <int64_t>(<const int8_t*>item)[0])
            else:
                word[0] = 1
                write_word(word + 1, (<const uint64_t*>item)[0] if width == 8
                           else <uint64_t>(<const uint32_t*>item)[0] if width == 4
                           else <uint64_t>(<const uint16_t*>item)[0] if width == 2
                           else <uint64_t>(<const uint8_t*>item)[0])
            item += stride
            word += WORD
        return count

    cdef Py_ssize_t next_objects(self, Text* texts) except -1:
        cdef Py_ssize_t count = min(<Py_ssize_t>BLOCK, self.size - self.done), k
        cdef PyObject* key
        cdef Room room
        cdef bytes copy
        cdef int plain = self.shape.plain, overflow
        cdef int64_t number
        self.kept.clear()
        for k in range(count):
            key = <PyObject*>PyTuple_GET_ITEM(self.keys, self.done + k)
            if plain == STR and is_str(key) and is_ascii(key):
                texts[k].data = <const uint8_t*>str_data(key)
                texts[k].size = str_size(key)
                continue
            if plain == BYTES and is_bytes(key):
                texts[k].data = <const uint8_t*>bytes_data(key)
                texts[k].size = bytes_size(key)
                continue
            if plain == INT and is_int(key):
                number = int_value(key, &overflow)
                if overflow == 0:
                    write_signed(self.words + k * WORD, number)
                    texts[k].data = self.words + k * WORD
                    texts[k].size = 9
                    continue
            open_room(&room)
            try:
                self.shape.write(&room, <object>key, True)
                copy = PyBytes_FromStringAndSize(<char*>room.data, room.size)
            except (TypeError, ValueError, OverflowError) as error:
                error.add_note(f"This was key {self.done + k} of {self.size}.")
                raise
            finally:
                close_room(&room)
            self.kept.append(copy)
            texts[k].data = <const uint8_t*>PyBytes_AS_STRING(copy)
            texts[k].size = PyBytes_GET_SIZE(copy)
        self.done += count
        return count
