package main

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// refusal is an error that the caller is told.
type refusal struct {
	status       int
	code, reason string
}

func (r *refusal) Error() string { return r.code + ": " + r.reason }

func bad(member, reason string) error {
	return &refusal{http.StatusBadRequest, "BAD_REQUEST", member + " " + reason}
}

// again says whether the database asks for the same once more: another request with this key was quicker, or a deadlock was broken.
func again(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "23505" || pg.Code == "40P01" || pg.Code == "40001")
}

// refused is what the caller is told of an error of the database.
func refused(err error) *refusal {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return &refusal{http.StatusServiceUnavailable, "UPSTREAM_UNAVAILABLE", "the database does not answer"}
	}
	switch pg.Message { // the functions' own
	case "INSUFFICIENT_FUNDS":
		return &refusal{http.StatusConflict, pg.Message, "the account has less"}
	case "LIMITS_EXCEEDED":
		return &refusal{http.StatusConflict, pg.Message, "the account has paid as much as it may today"}
	case "IDEMPOTENCY_CONFLICT":
		return &refusal{http.StatusConflict, pg.Message, "the key was used for another request"}
	case "NOT_FOUND":
		return &refusal{http.StatusNotFound, pg.Message, "no such account"}
	}
	if strings.HasPrefix(pg.Code, "22") { // of a value that a column cannot have
		return &refusal{http.StatusBadRequest, "BAD_REQUEST", pg.Message}
	}
	return &refusal{http.StatusInternalServerError, "INTERNAL", "the database refuses this: " + pg.Message}
}

func (r *refusal) appendJSON(out []byte) []byte {
	out = append(append(out, `{"code":"`...), r.code...)
	out = strconv.AppendQuote(append(out, `","reason":`...), r.reason)
	out = strconv.AppendBool(append(out, `,"retryable":`...), r.status == http.StatusServiceUnavailable)
	return append(out, '}')
}
