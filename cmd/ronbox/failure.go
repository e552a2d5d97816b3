package main

import (
	"errors"
	"fmt"
	"strings"

	"ronbox/httpapi/wire"
)

// failure is an error that knows its exit code and what to do next.
type failure struct {
	verdict
	err     error
	details map[string]any // for --json

	unsettled bool // what was sent may have been done: next and details hold even when Ctrl-C was the end of it
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// failed makes a failure; next may be empty.
func failed(code int, reason, next, format string, args ...any) *failure {
	return &failure{verdict: verdict{code, reason, next}, err: fmt.Errorf(format, args...)}
}

// seeHelp stands where the usage of the verb is put in.
const seeHelp = "see --help"

// usage makes the failure of a wrong command line.
func usage(format string, args ...any) error {
	return failed(exitUsage, "usage", seeHelp, format, args...)
}

// withDetails adds members to the problem that err becomes, and keeps its verdict.
func withDetails(err error, details map[string]any) error {
	f, ok := errors.AsType[*failure](err)
	return &failure{verdict: judge(err), err: err, details: details, unsettled: ok && f.unsettled}
}

// asProblem gives any error the form that the node's refusals have.
func asProblem(err error) *wire.Problem {
	v := judge(err)
	out := wire.Problem{
		Type: "urn:ronbox:problem:cli:" + v.reason, Title: title(v.reason), Detail: err.Error(), Code: v.reason, Reason: v.reason,
		Service: "cli", Retryable: v.code == exitBusy || v.code == exitUnreachable,
	}
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		out = *p
	}
	details := map[string]any{"exit": v.code}
	if v.next != "" {
		details["next"] = v.next
	}
	for k, d := range out.Details {
		details[k] = d
	}
	if f, ok := errors.AsType[*failure](err); ok {
		for k, d := range f.details {
			details[k] = d
		}
	}
	out.Details = details
	return &out
}

// title turns a reason into words: "not_reachable" is "Not reachable".
func title(reason string) string {
	words := strings.ReplaceAll(reason, "_", " ")
	if words == "" {
		return ""
	}
	return strings.ToUpper(words[:1]) + words[1:]
}
