//go:build !flowdebug

package flow

// Without the tag flowdebug the order of locks is not checked; these compile to nothing.

func assertOrder(*Mutex) {}
func noteHeld(*Mutex)    {}
func noteFreed(*Mutex)   {}
func assertFree(string)  {}
