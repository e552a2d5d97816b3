package flow

import "errors"

var (
	// ErrBusy is returned by Queue.TrySend when the queue is full. Nothing was enqueued; the same call may succeed later.
	ErrBusy = errors.New("flow: queue full")
	// ErrClosed is returned for a closed queue or bus. Nothing was enqueued.
	ErrClosed = errors.New("flow: closed")
	// ErrCanceled answers an item that was given up before anything was done for it, and is the cause of a context cancelled by shutdown.
	ErrCanceled = errors.New("flow: canceled")
	// ErrUnknown is returned to a waiter that left while its item was being worked on: it may or may not have taken effect.
	ErrUnknown = errors.New("flow: outcome unknown")
	// ErrAborted is the cause of a task's context once its drain deadline is over.
	ErrAborted = errors.New("flow: drain deadline over, aborted")
	// ErrEnded is reported for a task that returned nil although it was not told to drain.
	ErrEnded = errors.New("flow: task returned before shutdown")
)
