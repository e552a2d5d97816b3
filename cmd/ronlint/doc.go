// Command ronlint is a vet tool that holds the program to the rules that no other tool
// knows: go vet -vettool=bin/ronlint ./...
//
// lockwait: no lock is held over what may wait. A lock is a flow.Mutex, a sync.Mutex, a
// sync.RWMutex or a sync.Locker, from its Lock to its Unlock on every path; the function
// that takes it releases it. What may wait is a channel operation (but for close and a
// select with a default), a call that takes a context, file and network I/O, a read or
// commit of the store, a sleep, a Wait, a log call, a callback (the call of a func value
// that is a parameter, a field or of unknown origin), and a call of a function of this
// program that reaches one of these. A context's cancel function and a clock
// (func() time.Time) are no callbacks.
//
// determinism: nothing that the Apply of a store command reaches may depend on anything
// but its arguments: no clock, chance, environment, order of a map, float, I/O, goroutine
// or channel.
//
// rawchan: what queues, repeats or runs later is declared in the catalogue of flow. A
// channel that flow did not make is a signal: its elements are struct{}, and it has room
// for one at most. Nothing but flow uses time.NewTicker, time.Tick and time.AfterFunc.
//
// A deviation says why it is none, on its line or on the one above:
//
//	//lockwait: the socket is non-blocking
//	//determinism: the keys are sorted before they are used
//	//rawchan: a semaphore, it queues nothing
//
// Where no lock is held, a lockwait comment says that the operation never waits: it does
// not count for the callers either. Where one is held it speaks of these locks alone. A
// determinism comment counts for all callers.
//
// # Invariants
//
//  1. A comment without a reason is a finding, and so is one that excuses nothing.
//  2. Tests are not looked at: they may hold a lock to force what they are about.
//  3. Outside of the program a table says what waits; nothing else there does.
//  4. A method of an interface does what any of its implementations does that the
//     package of the interface, or that of the call, knows.
//  5. A closure counts where it is called, a go statement nowhere. To determinism a closure
//     is part of what it stands in, and a function that is named is one that is called.
//  6. What cannot be followed is not guessed: determinism takes a func value that is no
//     clock to be found where it is made.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package main
