package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"syscall"

	"ronbox/cmd/ronbox/server/process"
	"ronbox/httpapi/client"
	"ronbox/httpapi/refusal"
	"ronbox/httpapi/wire"
	clusterapi "ronbox/httpapi/wire/cluster"
	edgeapi "ronbox/httpapi/wire/edge"
	indexapi "ronbox/httpapi/wire/index"
	nodeapi "ronbox/httpapi/wire/node"
	registryapi "ronbox/httpapi/wire/registry"
	rewarderapi "ronbox/httpapi/wire/rewarder"
	walletapi "ronbox/httpapi/wire/wallet"
	"ronbox/store"
)

// Exit codes of all verbs. serve adds 10, stopped with aborted tasks, which package server returns.
const (
	ExitDone        = 0
	ExitFailed      = 1                    // refused or failed
	ExitUsage       = 2                    // wrong flags or arguments
	ExitBad         = 3                    // a check failed
	ExitUnreachable = 4                    // no node answers
	ExitDenied      = 5                    // no token, or one without permission
	ExitBusy        = 6                    // busy, draining or timed out: try again
	ExitCorrupt     = process.ExitCorrupt  // the database file is damaged
	ExitInternal    = process.ExitInternal // a bug
	exitStorage     = process.ExitStorage  // a write or sync failed
	ExitLocked      = process.ExitLocked   // another process holds the file
	exitPermission  = process.ExitDenied   // a file may not be read or written
	ExitConfig      = process.ExitConfig   // the configuration or the schema does not fit
	ExitInterrupted = 130                  // Ctrl-C

	// Codes 20 to 39 are outcomes of one verb, described in its help.
	ExitNothingLeft = 20 // wallet batch: every operation was done before
	// wallet batch: some operations were refused; edge fill: all objects are stored, some not
	// pinned
	ExitSomeRefused = 21
	// wallet batch: the file is not a batch, so no operation was sent; edge packs rescan: a pack is
	// invalid
	ExitFileUnfit = 22
)

// Outcome is the meaning of an error for scripts and people.
type Outcome struct {
	Code   int
	Reason string // lower_snake, as in problems
	Next   string // advice
}

// Failure is an error with an outcome. If its code is 0, it has the outcome of Err, and Next if
// that is set.
type Failure struct {
	Outcome
	Err     error
	Details map[string]any // for --json

	Unsettled bool // the request may have been carried out: keep Next and Details after Ctrl-C
}

func (f *Failure) Error() string { return f.Err.Error() }

func (f *Failure) Unwrap() error { return f.Err }

// Fail returns a failure; next may be empty.
func Fail(code int, reason, next, format string, args ...any) *Failure {
	return &Failure{Outcome: Outcome{code, reason, next}, Err: fmt.Errorf(format, args...)}
}

// seeHelp is replaced by the usage of the verb.
const seeHelp = "see --help"

// Usage returns the failure of a wrong command line.
func Usage(format string, args ...any) error {
	return Fail(ExitUsage, "usage", seeHelp, format, args...)
}

// ErrorRow gives the errors of a package an outcome.
type ErrorRow struct {
	Is func(error) bool
	Outcome
}

// Is returns the condition of an ErrorRow: the error is or wraps target.
func Is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

// Classify returns the outcome of err: that of a Failure, of the status of a Problem, or of the
// table of errors, or of the first of rows that matches.
func Classify(err error, rows ...ErrorRow) Outcome {
	if f, ok := errors.AsType[*Failure](err); ok {
		if f.Code != 0 {
			return f.Outcome
		}
		v := Classify(f.Err, rows...)
		v.Next = cmp.Or(f.Next, v.Next)
		return v
	}
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		return classifyProblem(p)
	}
	if errors.Is(err, client.ErrNotReachable) {
		return classifyUnreachable(err)
	}
	for _, row := range outcomes() {
		if errors.Is(err, row.is) {
			return row.Outcome
		}
	}
	for _, row := range rows {
		if row.Is(err) {
			return row.Outcome
		}
	}
	return Outcome{ExitFailed, "failed", ""}
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
		{
			store.ErrLocked,
			Outcome{
				ExitLocked,
				"locked",
				"stop that process (a node: `ronbox drain`), or use the verbs that ask the running node",
			},
		},
		{
			store.ErrNoDatabase,
			Outcome{
				ExitCorrupt,
				"no_database",
				"check the path; if the file was a database, restore a snapshot with `ronbox db restore`",
			},
		},
		{store.ErrCorrupt, Outcome{ExitCorrupt, "corrupt", "restore a snapshot with `ronbox db restore`"}},
		{store.ErrPoisoned, Outcome{exitStorage, "storage_failed", "check the disk, then start again"}},
		{store.ErrSchema, Outcome{ExitConfig, "schema", "use the release that wrote the file, or a newer one"}},
		{
			store.ErrClustered,
			Outcome{
				ExitConfig,
				"clustered",
				"use the running node, or first make it a node alone with `ronbox cluster leave --last`",
			},
		},
		{store.ErrAmnesia, Outcome{ExitFailed, "amnesia", "the node keeps its state in memory: there is no file"}},
		{store.ErrNetwork, Outcome{ExitFailed, "network_disk", "put the file on a local disk"}},
		{store.ErrFull, Outcome{ExitFailed, "store_full", "make room on the disk"}},
		{syscall.ENOSPC, Outcome{ExitFailed, "disk_full", "make room there, or name a path on another disk"}},
		{
			fs.ErrPermission,
			Outcome{exitPermission, "permission", "check the owner and the mode of that path, or run as its owner"},
		},
		{syscall.EROFS, Outcome{exitStorage, "read_only", "name a path on a file system that can be written"}},
		{syscall.EISDIR, Outcome{ExitFailed, "is_directory", "name a file"}},
		{syscall.ENOTDIR, Outcome{ExitFailed, "not_a_directory", "name a folder"}},
		{fs.ErrNotExist, Outcome{ExitFailed, "not_found", "check the path"}},
	}
}

// notReachable is the reason of a failed connection to a node.
const notReachable = "not_reachable"

// classifyUnreachable returns the outcome of a failed connection.
func classifyUnreachable(err error) Outcome {
	if errors.Is(err, fs.ErrPermission) {
		return Outcome{
			exitPermission,
			"permission",
			"run as the user of the node, or add your user to uds.allow_uids or uds.map",
		}
	}
	next := "start the node with `ronbox serve`, or point --data-dir or --url at it"
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		next = "pass the certificate or that of its issuer with --ca-file, and use the name in the certificate in --url"
	} else if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
		next = "that port does not speak TLS: begin the URL with http"
	}
	return Outcome{ExitUnreachable, notReachable, next}
}

// Refusals has the table of each service. A service that is absent has the shared rows only.
var Refusals = map[string]refusal.Table{
	"cluster":  clusterapi.Refusals,
	"edge":     edgeapi.Refusals,
	"index":    indexapi.Refusals,
	"node":     nodeapi.Refusals,
	"registry": registryapi.Refusals,
	"rewarder": rewarderapi.Refusals,
	"wallet":   walletapi.Refusals,
}

// rowOf returns the row of a refusal, or nil if this release does not know its reason.
func rowOf(p *wire.Problem) *refusal.Row {
	cause, _ := p.Details["cause"].(string)
	return Refusals[p.Service].Find(p.Reason, cause)
}

func classifyProblem(p *wire.Problem) Outcome {
	v := Outcome{refusal.ExitOf(p.Status), p.Reason, ""}
	if row := rowOf(p); row != nil {
		v.Code, v.Next = row.ExitCode(), row.Advice(p.Details)
	}
	switch {
	case p.Unknown() && v.Next == "":
		v.Next = "Run the same command again: it is safe."
	case strings.Contains(p.Detail, "uds.allow_uids"):
		v.Next = "" // the detail says it
	}
	return v
}

// asProblem converts any error to a problem document.
func asProblem(err error, v Outcome) *wire.Problem {
	var out wire.Problem
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		out = *p
	} else {
		title := strings.ReplaceAll(v.Reason, "_", " ")
		out = wire.Problem{
			Type:      "urn:ronbox:problem:cli:" + v.Reason,
			Title:     strings.ToUpper(title[:1]) + title[1:],
			Detail:    err.Error(),
			Reason:    v.Reason,
			Service:   "cli",
			Retryable: v.Code == ExitBusy || v.Code == ExitUnreachable,
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
