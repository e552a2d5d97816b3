package main

import (
	"context"
	"errors"
	"net/http"

	"ronbox/httpapi/wire"
)

// maxRecalled is how many entries of a statement are looked through for one payment: a repeat comes within days, not
// after years.
const maxRecalled = 20 * statementPage

// find gives the posting of op's statement, among its newest, that is the one looked for; nil where there is none, or
// where the caller may not read it.
func (s *sender) find(ctx context.Context, op wire.BatchOp, is func(p *posting) bool) (found *posting, err error) {
	if op.Op == "" || s.node == nil {
		return nil, nil
	}
	account, asset, err := s.statementOf(ctx, s.node, &op)
	if err == nil && account != "" {
		left := maxRecalled
		err = s.trace(ctx, s.node, account, asset, func(p posting) bool {
			if is(&p) {
				found = &p
			}
			left--
			return found == nil && left > 0
		})
	}
	if p, refused := errors.AsType[*wire.Problem](err); refused && p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests {
		return nil, nil // may not, or there is nothing to read: the node judges the request itself
	}
	return found, err
}

// recall looks whether what err refuses was done under key before: the node forgets keys after some time, and knows them
// by who asks. It gives the receipt of then.
func (s *sender) recall(ctx context.Context, err error, o order, key string, nonce uint64) (receipt []byte) {
	p, refused := errors.AsType[*wire.Problem](err)
	if !refused || p.Status != http.StatusConflict && p.Status != http.StatusBadRequest && p.Status != http.StatusNotFound || p.Retryable {
		return nil
	}
	op := o.op
	op.Nonce = nonce
	was, err := s.find(ctx, op, func(p *posting) bool { return p.Idem == key && isPosting(&op, p) })
	if err != nil || was == nil {
		return nil
	}
	return was.raw
}

func wasNonce(p *posting) uint64 {
	if p == nil {
		return 0
	}
	return p.Nonce
}
