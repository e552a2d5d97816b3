//go:build !flowsched

package flow

import "sync"

// Without the tag flowsched no schedule is explored, and these compile to nothing.

type lock = sync.Mutex

func point(string) {}
func woken(string) {}
func begin(string) {}

func either2[A, B any](_ string, a A, b B) (A, B)            { return a, b }
func either3[A, B, C any](_ string, a A, b B, c C) (A, B, C) { return a, b, c }
