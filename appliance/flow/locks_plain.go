//go:build !flowdebug

package flow

// Without the tag flowdebug the lock order is not checked, and these compile to nothing.

func assertOrder(*Mutex) {}
func noteHeld(*Mutex)    {}
func noteFreed(*Mutex)   {}
func assertFree(string)  {}
