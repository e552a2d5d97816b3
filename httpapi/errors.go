package httpapi

import (
	"errors"
	"time"
)

// ErrNoSuch is what a Node returns for a name that stands for nothing: 404.
var ErrNoSuch = errors.New("there is no such thing here")

// ConflictError is what a Node returns for what cannot be done in its present state: 409. Reason says which, for people,
// and repeats nothing of the request.
type ConflictError struct{ Reason string }

func (e *ConflictError) Error() string { return e.Reason }

// ReloadError says why a configuration was not taken into force; the old one still is: 422.
type ReloadError struct {
	Reason string   // parse, validate, restart, bind, tls …
	Keys   []string // what is wrong or would need a restart
	Detail string   // for people
}

func (e *ReloadError) Error() string {
	if e.Detail == "" {
		return "the old configuration stays in force: " + e.Reason
	}
	return "the old configuration stays in force: " + e.Detail
}

// rateError says that a bucket is empty, and when its next token comes.
type rateError struct{ wait time.Duration }

func (e *rateError) Error() string { return "too many requests a second" }
