package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"syscall"

	"ronbox/appliance"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// The exit codes of every verb. serve adds 10, stopped with aborted tasks, which the appliance returns itself.
const (
	exitDone        = 0
	exitFailed      = 1                      // refused, or could not be done
	exitUsage       = 2                      // wrong flags or arguments
	exitBad         = 3                      // checked, and found bad
	exitUnreachable = 4                      // no node answers
	exitDenied      = 5                      // no token, or one that may not
	exitBusy        = 6                      // busy, draining or timed out: try again
	exitCorrupt     = appliance.ExitCorrupt  // the database file is damaged
	exitInternal    = appliance.ExitInternal // a bug
	exitStorage     = appliance.ExitStorage  // a write or sync failed
	exitLocked      = appliance.ExitLocked   // another process holds the file
	exitPermission  = appliance.ExitDenied   // a file may not be read or written
	exitConfig      = appliance.ExitConfig   // the configuration or the schema does not fit
	exitInterrupted = 130                    // Ctrl-C
)

// verdict is what an error means to a script and to a person.
type verdict struct {
	code   int
	reason string // lower_snake, as in problems
	next   string // what to do about it
}

// judge sorts err: a failure knows its verdict, a problem is sorted by its status, the rest by the table.
func judge(err error) verdict {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.verdict
	}
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		return judgeProblem(p)
	}
	if errors.Is(err, client.ErrNotReachable) {
		return judgeUnreachable(err)
	}
	for _, row := range verdicts() {
		if errors.Is(err, row.is) {
			return row.verdict
		}
	}
	if f, ok := errors.AsType[*record.FieldError](err); ok && f.Field != "" {
		return verdict{exitFailed, "malformed", "correct the member that is named"}
	} else if ok {
		return verdict{exitFailed, "malformed", "give one strict JSON value in UTF-8"}
	}
	return verdict{exitFailed, "failed", ""}
}

type verdictRow struct {
	is error
	verdict
}

func verdicts() []verdictRow {
	return []verdictRow{
		{context.Canceled, verdict{exitInterrupted, "interrupted", ""}},
		{client.ErrTooLarge, verdict{exitFailed, "too_large", "is it a ronbox node?"}},
		{context.DeadlineExceeded, verdict{exitBusy, "timeout", "try again, or allow more with --timeout"}},
		{client.ErrUnknown, verdict{exitBusy, "unknown", "repeat the same command: it is safe"}},
		{store.ErrLocked, verdict{exitLocked, "locked", "stop that process, or use the verbs that ask the running node"}},
		{store.ErrCorrupt, verdict{exitCorrupt, "corrupt", "restore a snapshot with `ronbox db restore`"}},
		{store.ErrPoisoned, verdict{exitStorage, "storage_failed", "check the disk, then start again"}},
		{store.ErrSchema, verdict{exitConfig, "schema", "use the release that wrote the file, or a newer one"}},
		{store.ErrAmnesia, verdict{exitFailed, "amnesia", "the node keeps its state in memory: there is no file"}},
		{store.ErrNetwork, verdict{exitFailed, "network_disk", "put the file on a local disk"}},
		{store.ErrFull, verdict{exitFailed, "store_full", "make room on the disk"}},
		{auth.ErrSpec, verdict{exitFailed, "malformed", ""}},
		{syscall.ENOSPC, verdict{exitFailed, "disk_full", "make room there, or name a path on another disk"}},
		{fs.ErrPermission, verdict{exitPermission, "permission", "check the owner and the mode of that path, or run as its owner"}},
		{syscall.EROFS, verdict{exitPermission, "read_only", "name a path on a file system that can be written"}},
		{syscall.EISDIR, verdict{exitFailed, "is_directory", "name a file"}},
		{fs.ErrNotExist, verdict{exitFailed, "not_found", "check the path"}},
	}
}

// judgeUnreachable says why no connection came about: that no node listens is only the usual cause.
func judgeUnreachable(err error) verdict {
	if errors.Is(err, fs.ErrPermission) {
		return verdict{exitPermission, "permission", "run as the user of the node, or have uds.allow_uids or uds.map name yours"}
	}
	next := "start the node with `ronbox serve`, or point --data-dir or --url at it"
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		next = "name the certificate, or that of who signed it, with --ca-file, and the node as the certificate does with --url"
	} else if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
		next = "that port does not speak TLS: begin the URL with http"
	}
	return verdict{exitUnreachable, "not_reachable", next}
}

func judgeProblem(p *wire.Problem) verdict {
	v := verdict{exitFailed, p.Reason, ""}
	switch p.Status {
	case http.StatusBadRequest:
		v.next = "correct what is named, then run it again"
	case http.StatusUnauthorized:
		v.code, v.next = exitDenied, "give a token with --token-file, or use the node's socket with --data-dir"
	case http.StatusForbidden:
		v.code, v.next = exitDenied, "use a token whose scope allows this: `ronbox token inspect` shows what one allows"
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		v.code, v.next = exitBusy, "try again"
	case http.StatusInsufficientStorage:
		v.next = "make room on the disk or raise store.max_bytes"
	case http.StatusGone:
		v.next = "propose again"
	case http.StatusNotFound:
		if p.Service == "wallet" {
			v.next = "check the txid: `ronbox wallet history ACCOUNT` shows those of an account"
		}
		if strings.Contains(p.Detail, "no such route") {
			v.next = "check the URL; what administers a node is on its socket (--data-dir), on TCP with server.admin_on_tcp only"
		}
	}
	if p.Code == "LIMITS_EXCEEDED" { // no token would help
		v.code, v.next = exitFailed, "move less at once, or raise the limit that is named"
	}
	switch p.Reason {
	case "chain_mismatch", "version_skew":
		v.next = "look at `ronbox registry head` and try again on top of it"
	case "reload_refused":
		v.next = "correct what is named, see `ronbox config diff running`, then reload again"
	case "insufficient_funds":
		v.next = "`ronbox wallet balance ACCOUNT` shows what may be spent, `ronbox wallet history ACCOUNT` what a hold has kept back"
	case "expired":
		if p.Status == http.StatusBadRequest {
			v.next = "name a later valid_until, or none"
		}
	case "account_locked":
		v.next = "`ronbox wallet seq ACCOUNT` shows its flags, `ronbox wallet unfreeze` takes them off"
	case "asset_unknown":
		v.next = "`ronbox wallet assets` lists them, --declare adds one"
	case "hold_unknown", "hold_closed", "hold_expired":
		v.next = "`ronbox wallet history ACCOUNT` shows its holds and what became of them"
	case "amnesia": // to try again would not help
		v.code, v.next = exitFailed, "the node keeps its state in memory: there is no file to work on"
	}
	if strings.Contains(p.Detail, "GET /v1/ledger/head") {
		v.next = "`ronbox ledger head` says how far it reaches"
	}
	switch {
	case p.Unknown():
		v.next = "repeat the same command: it is safe"
	case strings.Contains(p.Detail, "`ronbox ") && p.Status != http.StatusUnauthorized:
		v.next = "" // the node has said it
	}
	return v
}
