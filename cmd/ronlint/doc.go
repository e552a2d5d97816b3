// Command ronlint is a vet tool with the rules of this program: go vet -vettool=bin/ronlint ./...
//
// lockwait: no lock is held over an operation that may wait. A lock is a flow.Mutex, a
// flow.RWMutex, a sync.Mutex, a sync.RWMutex or a sync.Locker, from its Lock to its Unlock on every
// path. The function that takes a lock must release it. Operations that may wait are channel
// operations (except close and a select with a default), calls that take a context, file and
// network I/O, reads and commits of the store, a sleep, a Wait, log calls, callbacks (calls of a
// func value that is a parameter, a field or of unknown origin), and calls of functions of this
// program that reach one of these. The cancel function of a context and a clock (func() time.Time)
// are not callbacks.
//
// A lock of package sync outside of package flow is a leaf. Its comment says that it is "a leaf",
// and no other lock of this program is taken while it is held; the locks inside package flow, which
// are innermost, are exempt. A lock that is held over others is a flow.Mutex, which has a rank.
//
// determinism: the Apply of a store command depends only on its arguments. It reaches no clock,
// randomness, environment, map order, float, I/O, goroutine or channel.
//
// rawchan: queues, tickers and delayed functions are declared in the catalogue of package flow. A
// channel that flow did not make must be a signal: its elements are struct{}, and its capacity is
// at most one. Only flow uses time.NewTicker, time.Tick and time.AfterFunc.
//
// width: a line of code has at most 120 columns, a comment on lines of its own at most 100; a tab
// counts as four. Generated files and lines that cannot be split are exempt.
//
// discard: no call that is a statement of its own, deferred or not, drops an error. To assign the
// error to _ is to say that it does not matter. Writes to memory, prints to the standard error, and
// prints to a table, whose Flush is checked, are exempt.
//
// leftover: nothing is left of debugging or undone, in tests neither: no print or println, no panic
// with a text such as "not implemented", and no comment that leaves a task to later.
//
// A deviation is excused by a comment with the reason, on its line or on the line above:
//
//	//lockwait: the socket is non-blocking
//	//determinism: the keys are sorted before they are used
//	//rawchan: a semaphore, it queues nothing
//	//discard: the writer keeps its first error
//
// If no lock is held, a lockwait comment states that the operation never waits; it then does not
// count for the callers either. If a lock is held, the comment covers only these locks. A
// determinism comment counts for all callers.
//
// # Invariants
//
//  1. A comment without a reason is reported, and so is a comment that excuses nothing.
//  2. Tests are not analyzed, except by leftover: they may hold a lock to force a schedule.
//  3. A table lists the functions outside the program that wait. All others outside the program are
//     assumed not to wait.
//  4. A call of an interface method counts as a call of each implementation in the package of the
//     interface, in the package of the call, and in the packages that they import.
//  5. The body of a closure counts where the closure is called. The function of a go statement does
//     not count. For determinism, a closure is part of the enclosing function, and a function that
//     is referred to counts as called.
//  6. A call with an unknown target is not guessed: determinism assumes that a func value other
//     than a clock is analyzed where it is created.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package main
