package slab

import (
	"fmt"
	"reflect"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Values of a chunk, as powers of 2. A mapping takes memory only as it is used.
const (
	mapped = 16
	inHeap = 8
)

// Slab is a list of values, each with a number.
type Slab[T any] struct {
	chunks atomic.Pointer[[][]T] // replaced when it grows
	shift  uint32                // a chunk has 1<<shift values
	free   []uint32
	used   uint32 // numbers given out so far
}

// New returns an empty Slab.
func New[T any]() *Slab[T] {
	s := &Slab[T]{shift: inHeap}
	if outside && flat(reflect.TypeFor[T]()) {
		s.shift = mapped
	}
	s.chunks.Store(&[][]T{})
	return s
}

// flat reports whether the values of a type have no pointers.
func flat(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return flat(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !flat(t.Field(i).Type) {
				return false
			}
		}
		return true
	}
	return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128
}

// Add returns a zero value and its number.
func (s *Slab[T]) Add() (uint32, *T) {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i, s.At(i)
	}
	i := s.used
	if chunks := *s.chunks.Load(); int(i>>s.shift) == len(chunks) {
		next := append(chunks[:len(chunks):len(chunks)], s.grow(len(chunks) > 0))
		s.chunks.Store(&next)
	}
	s.used++
	return i, s.At(i)
}

// At returns the value with a number.
func (s *Slab[T]) At(i uint32) *T { return &(*s.chunks.Load())[i>>s.shift][i&(1<<s.shift-1)] }

// Free takes the value with a number back, and clears it.
func (s *Slab[T]) Free(i uint32) {
	clear(unsafe.Slice(s.At(i), 1))
	s.free = append(s.free, i)
}

// Used returns how many numbers were given out: that of each value is below it.
func (s *Slab[T]) Used() uint32 { return s.used }

// grow returns a new chunk. A large one may have huge pages, which make it cheaper to read it here
// and there.
func (s *Slab[T]) grow(large bool) []T {
	if s.shift == inHeap {
		return make([]T, 1<<inHeap)
	}
	var v T
	size, rw := int(unsafe.Sizeof(v))<<mapped, unix.PROT_READ|unix.PROT_WRITE
	raw, err := unix.Mmap(-1, 0, size, rw, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(fmt.Errorf("slab: no memory: %w", err))
	}
	if large {
		_ = unix.Madvise(raw, unix.MADV_HUGEPAGE) //determinism: it only makes accesses cheaper
	}
	runtime.AddCleanup(s, func(raw []byte) { _ = unix.Munmap(raw) }, raw)
	return unsafe.Slice((*T)(unsafe.Pointer(&raw[0])), 1<<mapped)
}
