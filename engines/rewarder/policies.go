package rewarder

import (
	"context"
	"fmt"

	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// PutPolicy stores a policy and binds its id to its hash for ever. Storing the same policy again,
// in any spelling, is a no-op; the signatures that it came with first stay. Errors: *FieldError,
// *ConflictError.
func (e *Engine) PutPolicy(
	ctx context.Context, by Call, id string, body []byte, sigs []record.Signature,
) (Policy, error) {
	p, err := record.ParsePolicy(body)
	switch {
	case err != nil:
		return Policy{}, err
	case p.ID != id:
		return Policy{}, &FieldError{Field: "id", Reason: "differs from the id in the path"}
	case p.Tenant != by.Tenant:
		return Policy{}, &FieldError{Field: "tenant", Reason: "differs from the tenant of the caller"}
	}
	cfg := e.live()
	if err := record.CheckSignatures(p.Hash(), sigs, cfg.TrustKeys, cfg.Quorum); err != nil {
		return Policy{}, err
	}
	doc := Policy{ID: id, Hash: p.Hash(), Body: p.Bytes(), Signatures: sigs}
	c := command[Policy]{"put_policy", len(body), func(r store.Reader, w *store.Writes) (Policy, error) {
		if has, ok := get(r, policies, scoped(by.Tenant, id)); ok && has.Hash != doc.Hash {
			return doc, &ConflictError{"policy", has.Hash.String(), doc.Hash.String()}
		} else if ok {
			return has, nil
		}
		policies.Put(w, scoped(by.Tenant, id), doc)
		w.Audit(by.event("policy.put", "",
			map[string]string{"id": id, "policy_hash": doc.Hash.String(), "tenant": by.Tenant}))
		first := doc
		first.Created = true
		return first, nil
	}}
	return commit(ctx, e, store.Work, c)
}

// Policy reads a policy. It returns ErrNotFound if it does not exist.
func (e *Engine) Policy(ctx context.Context, tenant, id string) (doc Policy, err error) {
	err = e.view(ctx, func(r store.Reader) error {
		doc, err = find(r, policies, scoped(tenant, id), "policy")
		return err
	})
	return doc, err
}

// find reads a row that a caller names. It returns ErrNotFound if it does not exist.
func find[K, V any](r store.Reader, t store.Table[K, V], key K, what string) (V, error) {
	v, ok := get(r, t, key)
	if !ok {
		return v, fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	return v, nil
}

// Policies reads a page of at most limit policies after the id after, in byte order of ids.
// Policies with a damaged row are left out.
func (e *Engine) Policies(ctx context.Context, tenant, after string, limit int) (PolicyPage, error) {
	page := PolicyPage{Policies: []PolicyInfo{}}
	err := e.view(ctx, func(r store.Reader) error {
		from, to := []byte(scoped(tenant, after)), []byte(tenant+"\x01")
		for _, doc := range readable(e, r, policies, textKey, from, to) {
			switch n := len(page.Policies); {
			case doc.ID == after:
			case n == limit:
				page.Next = page.Policies[n-1].ID
				return nil
			default:
				one := PolicyInfo{ID: doc.ID, Hash: doc.Hash, Signers: []string{}}
				for _, s := range doc.Signatures {
					one.Signers = append(one.Signers, s.Kid)
				}
				page.Policies = append(page.Policies, one)
			}
		}
		return nil
	})
	return page, err
}
