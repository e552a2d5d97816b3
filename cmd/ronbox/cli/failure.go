package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"strings"
	"syscall"

	"ronbox/appliance"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// The exit codes of every verb. serve adds 10, stopped with aborted tasks, which the appliance returns itself.
const (
	ExitDone        = 0
	ExitFailed      = 1                      // refused, or could not be done
	ExitUsage       = 2                      // wrong flags or arguments
	ExitBad         = 3                      // checked, and found bad
	ExitUnreachable = 4                      // no node answers
	ExitDenied      = 5                      // no token, or one that may not
	ExitBusy        = 6                      // busy, draining or timed out: try again
	ExitCorrupt     = appliance.ExitCorrupt  // the database file is damaged
	ExitInternal    = appliance.ExitInternal // a bug
	exitStorage     = appliance.ExitStorage  // a write or sync failed
	ExitLocked      = appliance.ExitLocked   // another process holds the file
	exitPermission  = appliance.ExitDenied   // a file may not be read or written
	ExitConfig      = appliance.ExitConfig   // the configuration or the schema does not fit
	ExitInterrupted = 130                    // Ctrl-C

	// 20 to 39 are outcomes of one verb, which its help tells.
	ExitNothingLeft = 20 // wallet batch: every operation was done before, none now
	ExitSomeRefused = 21 // wallet batch: all was sent, and some operations were refused
	ExitFileUnfit   = 22 // wallet batch: the file is no batch, and nothing was sent; edge packs rescan: a pack is not fit
)

// Outcome is the meaning of an error to a script and to a person.
type Outcome struct {
	Code   int
	Reason string // lower_snake, as in problems
	Next   string // what to do about it
}

// Failure is an error that knows its outcome. One without a code has the outcome of the error that it holds, but for
// the next step, if it names one.
type Failure struct {
	Outcome
	Err     error
	Details map[string]any // for --json

	Unsettled bool // the request may have been carried out: next step and details hold even after Ctrl-C
}

func (f *Failure) Error() string { return f.Err.Error() }

func (f *Failure) Unwrap() error { return f.Err }

// Fail makes a failure; next may be empty.
func Fail(code int, reason, next, format string, args ...any) *Failure {
	return &Failure{Outcome: Outcome{code, reason, next}, Err: fmt.Errorf(format, args...)}
}

// seeHelp is replaced by the usage of the verb.
const seeHelp = "see --help"

// Usage makes the failure of a wrong command line.
func Usage(format string, args ...any) error {
	return Fail(ExitUsage, "usage", seeHelp, format, args...)
}

// Hint refines the outcome of a service's refusals: another exit code, or the next step.
type Hint func(err error, o *Outcome)

// Classify gives the outcome of err: a failure knows it, a problem has that of its status, any other error that of the
// table. Hints refine the outcome of problems and of errors that stand in no table.
func Classify(err error, hints ...Hint) Outcome {
	if f, ok := errors.AsType[*Failure](err); ok {
		if f.Code != 0 {
			return f.Outcome
		}
		v := Classify(f.Err, hints...)
		v.Next = cmp.Or(f.Next, v.Next)
		return v
	}
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		return classifyProblem(p, hints)
	}
	if errors.Is(err, client.ErrNotReachable) {
		return classifyUnreachable(err)
	}
	for _, row := range outcomes() {
		if errors.Is(err, row.is) {
			return row.Outcome
		}
	}
	v := Outcome{ExitFailed, "failed", ""}
	for _, h := range hints {
		h(err, &v)
	}
	return v
}

type outcomeRow struct {
	is error
	Outcome
}

func outcomes() []outcomeRow {
	return []outcomeRow{
		{context.Canceled, Outcome{ExitInterrupted, "interrupted", ""}},
		{client.ErrTooLarge, Outcome{ExitFailed, "too_large", "is it a ronbox node?"}},
		{context.DeadlineExceeded, Outcome{ExitBusy, "timeout", "try again, or allow more with --timeout"}},
		{client.ErrUnknown, Outcome{ExitBusy, "unknown", "repeat the same command: it is safe"}},
		{store.ErrLocked, Outcome{ExitLocked, "locked", "stop that process, or use the verbs that ask the running node"}},
		{store.ErrCorrupt, Outcome{ExitCorrupt, "corrupt", "restore a snapshot with `ronbox db restore`"}},
		{store.ErrPoisoned, Outcome{exitStorage, "storage_failed", "check the disk, then start again"}},
		{store.ErrSchema, Outcome{ExitConfig, "schema", "use the release that wrote the file, or a newer one"}},
		{store.ErrAmnesia, Outcome{ExitFailed, "amnesia", "the node keeps its state in memory: there is no file"}},
		{store.ErrNetwork, Outcome{ExitFailed, "network_disk", "put the file on a local disk"}},
		{store.ErrFull, Outcome{ExitFailed, "store_full", "make room on the disk"}},
		{syscall.ENOSPC, Outcome{ExitFailed, "disk_full", "make room there, or name a path on another disk"}},
		{fs.ErrPermission, Outcome{exitPermission, "permission", "check the owner and the mode of that path, or run as its owner"}},
		{syscall.EROFS, Outcome{exitPermission, "read_only", "name a path on a file system that can be written"}},
		{syscall.EISDIR, Outcome{ExitFailed, "is_directory", "name a file"}},
		{fs.ErrNotExist, Outcome{ExitFailed, "not_found", "check the path"}},
	}
}

// classifyUnreachable says why no connection came about: that no node listens is only the usual cause.
func classifyUnreachable(err error) Outcome {
	if errors.Is(err, fs.ErrPermission) {
		return Outcome{exitPermission, "permission", "run as the user of the node, or have uds.allow_uids or uds.map name yours"}
	}
	next := "start the node with `ronbox serve`, or point --data-dir or --url at it"
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		next = "name the certificate, or that of who signed it, with --ca-file, and the node as the certificate does with --url"
	} else if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
		next = "that port does not speak TLS: begin the URL with http"
	}
	return Outcome{ExitUnreachable, "not_reachable", next}
}

func classifyProblem(p *wire.Problem, hints []Hint) Outcome {
	v := Outcome{ExitFailed, p.Reason, ""}
	switch p.Status {
	case http.StatusBadRequest:
		v.Next = "correct what is named, then run it again"
	case http.StatusUnauthorized:
		v.Code, v.Next = ExitDenied, "give a token with --token-file, or use the node's socket with --data-dir"
	case http.StatusForbidden:
		v.Code, v.Next = ExitDenied, "use a token whose scope allows this: `ronbox token inspect` shows what one allows"
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		v.Code, v.Next = ExitBusy, "try again"
	case http.StatusInsufficientStorage:
		v.Next = "make room on the disk or raise store.max_bytes"
	}
	for _, h := range hints {
		h(p, &v)
	}
	switch {
	case p.Unknown():
		v.Next = "repeat the same command: it is safe"
	case p.Reason == "amnesia": // to try again would not help
		v.Code, v.Next = ExitFailed, "the node keeps its state in memory: there is no file to work on"
	case strings.Contains(p.Detail, "no such route"):
		v.Next = "check the URL; what administers a node is on its socket (--data-dir), on TCP with server.admin_on_tcp only"
	case strings.Contains(p.Detail, "`ronbox ") && p.Status != http.StatusUnauthorized:
		v.Next = "" // the node has said it
	}
	return v
}

// asProblem gives any error the form that the node's refusals have.
func asProblem(err error, v Outcome) *wire.Problem {
	var out wire.Problem
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		out = *p
	} else {
		title := strings.ReplaceAll(v.Reason, "_", " ")
		out = wire.Problem{
			Type: "urn:ronbox:problem:cli:" + v.Reason, Title: strings.ToUpper(title[:1]) + title[1:], Detail: err.Error(),
			Code: v.Reason, Reason: v.Reason, Service: "cli", Retryable: v.Code == ExitBusy || v.Code == ExitUnreachable,
		}
	}
	details := map[string]any{"exit": v.Code}
	if v.Next != "" {
		details["next"] = v.Next
	}
	maps.Copy(details, out.Details)
	if f, ok := errors.AsType[*Failure](err); ok {
		maps.Copy(details, f.Details)
	}
	out.Details = details
	return &out
}

// FoundBad ends a verb that checked and found something bad. Its result is printed already, so --json gets no second
// document; the last line for people names the kind, where a verb tells several apart.
func (a *App) FoundBad(problem, kind string) error {
	a.Exit = ExitBad
	if a.Flags.JSON {
		return nil
	}
	fmt.Fprintf(a.Stderr, "ronbox: checked and found bad: %s\n", strings.ReplaceAll(Plain(problem), "\n", "; "))
	if kind != "" {
		fmt.Fprintln(a.Stderr, kind)
	}
	return nil
}
