package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	maxBody   = 1 << 20
	maxKey    = 64
	tries     = 5 // of a request that the database asks for again
	principal = "bench"
)

// service pays.
type service struct {
	pool  *pgxpool.Pool // which prepares each statement once a connection
	token [sha256.Size]byte
}

// newService makes the handler of all requests.
func newService(pool *pgxpool.Pool, token string) http.Handler {
	s := &service{pool, sha256.Sum256([]byte("Bearer " + token))}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/transfer", s.handle(s.transfer))
	mux.HandleFunc("POST /v1/batch", s.handle(s.batch))
	return mux
}

// request is what every request has.
type request struct {
	key         string
	body        []byte
	fingerprint []byte
}

// answer is what is sent back, and whether it was sent before.
type answer struct {
	body     []byte
	replayed bool
}

// handle checks what all requests have in common, and answers them.
func (s *service) handle(do func(context.Context, request) (answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a, err := s.serve(w, r, do)
		status := http.StatusOK
		if err != nil {
			var no *refusal
			if !errors.As(err, &no) {
				if no = refused(err); no.status >= 500 {
					log.Print(err)
				}
			}
			status, a.body = no.status, no.appendJSON(nil)
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
		if a.replayed {
			h.Set("Idempotent-Replayed", "true")
		}
		w.WriteHeader(status)
		_, _ = w.Write(a.body)
	}
}

func (s *service) serve(w http.ResponseWriter, r *http.Request, do func(context.Context, request) (answer, error)) (a answer, err error) {
	given := sha256.Sum256([]byte(r.Header.Get("Authorization")))
	if subtle.ConstantTimeCompare(given[:], s.token[:]) != 1 {
		return a, &refusal{http.StatusUnauthorized, "UNAUTHORIZED", "no such token"}
	}
	req := request{key: r.Header.Get("Idempotency-Key")}
	if !isKey(req.key) {
		return a, &refusal{http.StatusBadRequest, "BAD_REQUEST", "Idempotency-Key must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -"}
	}
	if req.body, err = read(w, r); err != nil {
		return a, &refusal{http.StatusBadRequest, "BAD_REQUEST", "the body cannot be read: " + err.Error()}
	}
	sum := sha256.New()
	_, _ = io.WriteString(sum, r.URL.Path)
	_, _ = sum.Write(req.body)
	req.fingerprint = sum.Sum(nil)
	ctx := context.WithoutCancel(r.Context()) // what was begun is ended, and pgx need not watch
	for n := 1; ; n++ {
		if a, err = do(ctx, req); err == nil || n == tries || !again(err) {
			return a, err
		}
	}
}

func isKey(key string) bool {
	for i := range len(key) {
		switch c := key[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return key != "" && len(key) <= maxKey
}

// read reads the whole body, into memory of the right size if that is known.
func read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 || r.ContentLength > maxBody {
		return io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// transfer does POST /v1/transfer.
func (s *service) transfer(ctx context.Context, r request) (a answer, err error) {
	t, err := decodeTransfer(r.body)
	if err != nil {
		return a, err
	}
	done := receipt{transfer: &t, key: r.key}
	err = s.pool.QueryRow(ctx, `select * from transfer($1, $2, $3, $4, $5, $6, $7)`,
		principal, r.key, r.fingerprint, t.payer, t.payee, t.amount, t.Memo).Scan(&done.seq, &done.at, &done.nonce, &a.replayed)
	if err != nil {
		return a, err
	}
	a.body = done.appendJSON(make([]byte, 0, 512))
	return a, nil
}

// batch does POST /v1/batch. The batch has one key, as that of the wallet: its ops have none of their own.
func (s *service) batch(ctx context.Context, r request) (a answer, err error) {
	all, err := decodeBatch(r.body)
	if err != nil {
		return a, err
	}
	payers, payees := make([]int64, len(all)), make([]int64, len(all))
	amounts, memos := make([]pgtype.Numeric, len(all)), make([]string, len(all))
	for i := range all {
		t := &all[i]
		payers[i], payees[i], amounts[i], memos[i] = t.payer, t.payee, t.amount, t.Memo
	}
	var seqs, nonces []int64
	var at time.Time
	err = s.pool.QueryRow(ctx, `select * from batch($1, $2, $3, $4, $5, $6, $7)`,
		principal, r.key, r.fingerprint, payers, payees, amounts, memos).Scan(&seqs, &at, &nonces, &a.replayed)
	if err != nil {
		return a, err
	}
	a.body = appendBatch(make([]byte, 0, 256*len(all)), all, seqs, nonces, at)
	return a, nil
}
