package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"ronbox/engines/registry/record"
	"ronbox/httpapi/wire"
)

const (
	maxMoved = 5 // times HEAD may move under one file

	maxBody = 1 << 20 // of one request
	wrapper = 256     // what a propose request holds besides the payload
)

// registryNode is what the applier needs of a node; *client.Client is one.
type registryNode interface {
	Head(ctx context.Context) (wire.Head, error)
	Version(ctx context.Context, v uint64, items bool) (wire.Version, error)
	Payload(ctx context.Context, v uint64) ([]byte, error)
	Signers(ctx context.Context, epoch uint64) (wire.Signers, error)
	Propose(ctx context.Context, payload []byte, wantB3 string) (wire.Proposed, error)
	Approve(ctx context.Context, id string, a wire.Approval) (wire.Approved, error)
	Commit(ctx context.Context, id string) (wire.Committed, bool, error)
}

// applier turns desired states into versions. It belongs to one goroutine.
type applier struct {
	repeater
	node registryNode
	keys []*record.Key
	now  func() time.Time
	show func(b record.Base, put []record.Item, remove []string)

	base record.Base // HEAD as it was last seen, checked; version 0: not yet
}

// apply makes desired the state of HEAD, on top of whatever HEAD has become by then.
func (ap *applier) apply(ctx context.Context, desired record.Items) (applied, error) {
	for range maxMoved {
		head, err := ap.refresh(ctx)
		if err != nil {
			return applied{}, err
		}
		put, remove := record.Diff(ap.base.Items, desired)
		if len(put) == 0 && len(remove) == 0 {
			return applied{Version: head.Version, PayloadB3: head.PayloadB3, CommittedAt: head.CommittedAt, Hash: head.Hash}, nil
		}
		ap.show(ap.base, put, remove)
		p, items, err := ap.payload(put, remove)
		if err != nil {
			return applied{}, err
		}
		done, err := ap.publish(ctx, p)
		if err == nil {
			ap.base = record.Base{Origin: p.Origin, Version: p.Version, PayloadB3: p.B3(), Items: items, Signers: ap.base.Signers}
			return applied{
				Version: done.Version, PayloadB3: done.PayloadB3, CommittedAt: done.CommittedAt, Hash: done.Hash,
				Put: len(put), Remove: len(remove), Changed: true,
			}, nil
		}
		if !moved(err) {
			return applied{}, err
		}
		ap.retrying("HEAD moved meanwhile (%v): looking again", err)
	}
	return applied{}, failed(exitBusy, "head_moved", "find out who else writes, then try again", "HEAD moved %d times while this state was being signed", maxMoved)
}

// refresh reads HEAD and, if it is not the one known, its state; nothing is believed that the hashes do not bear out.
func (ap *applier) refresh(ctx context.Context) (head wire.Head, err error) {
	err = ap.repeat(ctx, "head", func() (err error) { head, err = ap.node.Head(ctx); return err })
	if err != nil {
		return head, err
	}
	if head.Version == 0 {
		return head, failed(exitFailed, "no_genesis", "make one with `ronbox registry genesis` and `ronbox registry init`", "the log has no genesis")
	}
	if known := ap.base; head.Version == known.Version && head.PayloadB3 == known.PayloadB3.String() {
		return head, nil
	} else if head.Version <= known.Version {
		return head, distrust("HEAD is version %d, %s, after it was version %d, %s", head.Version, head.PayloadB3, known.Version, known.PayloadB3)
	}
	base, err := ap.fetchBase(ctx, head)
	if err != nil {
		return head, fmt.Errorf("read version %d: %w", head.Version, err)
	}
	if err := checkKeys(ap.keys, base.Signers); err != nil {
		return head, err
	}
	ap.base = base
	return head, nil
}

func (ap *applier) fetchBase(ctx context.Context, head wire.Head) (record.Base, error) {
	var raw []byte
	var doc wire.Version
	var signers wire.Signers
	err := ap.repeat(ctx, "read HEAD", func() (err error) {
		if raw, err = ap.node.Payload(ctx, head.Version); err != nil {
			return err
		}
		if doc, err = ap.node.Version(ctx, head.Version, true); err != nil {
			return err
		}
		signers, err = ap.node.Signers(ctx, 0)
		return err
	})
	if err != nil {
		return record.Base{}, err
	}
	return checkedBase(head, raw, doc, signers)
}

// checkedBase holds what the node sent against the hash that HEAD names: a signer vouches for all of it.
func checkedBase(head wire.Head, raw []byte, doc wire.Version, signers wire.Signers) (record.Base, error) {
	p, err := record.ParsePayload(raw)
	if err != nil {
		return record.Base{}, err
	}
	set, err := parseSignerSet(signers.SignerSet)
	if err != nil {
		return record.Base{}, err
	}
	items := make([]record.Item, len(doc.Items))
	for i, it := range doc.Items {
		if items[i], err = record.ParseItem(it); err != nil {
			return record.Base{}, fmt.Errorf("item %d: %w", i, err)
		}
	}
	all, err := record.NewItems(items)
	if err != nil {
		return record.Base{}, err
	}
	switch {
	case p.Version != head.Version:
		return record.Base{}, distrust("HEAD is version %d, the payload of version %d", head.Version, p.Version)
	case p.B3().String() != head.PayloadB3:
		return record.Base{}, distrust("the payload has hash %s, HEAD names %s", p.B3(), head.PayloadB3)
	case all.Root() != p.ItemsRoot:
		return record.Base{}, distrust("the items have root %s, the signed payload names %s", all.Root(), p.ItemsRoot)
	case set.B3() != p.SignerSetB3:
		return record.Base{}, distrust("the signer set has hash %s, the signed payload names %s", set.B3(), p.SignerSetB3)
	}
	return record.Base{Origin: p.Origin, Version: p.Version, PayloadB3: p.B3(), Items: all, Signers: set}, nil
}

func distrust(format string, args ...any) error {
	return failed(exitBad, "node_inconsistent", "do not sign: check a snapshot of the node with `ronbox registry verify`", "the node's answer does not fit what was signed: "+format, args...)
}

// publish brings p through all steps; each may be repeated, and the node makes one version of it.
func (ap *applier) publish(ctx context.Context, p *record.Payload) (done wire.Committed, err error) {
	var prop wire.Proposed
	err = ap.repeat(ctx, "propose", func() (err error) {
		prop, err = ap.node.Propose(ctx, p.Bytes(), p.B3().String())
		return err
	})
	if err != nil {
		return done, ap.maybeDone(ctx, p, &done, fmt.Errorf("propose: %w", err))
	}
	for _, k := range ap.keys {
		signed := approvalBody(k.Sign(p.B3(), ap.now()))
		err = ap.repeat(ctx, "approve", func() error {
			_, err := ap.node.Approve(ctx, prop.ProposalID, signed)
			return unlessIdentical(err)
		})
		if err != nil {
			return done, ap.maybeDone(ctx, p, &done, fmt.Errorf("approve as %s: %w", k.SignerID, err))
		}
	}
	err = ap.repeat(ctx, "commit", func() (err error) {
		done, _, err = ap.node.Commit(ctx, prop.ProposalID)
		return err
	})
	if err != nil {
		return done, ap.maybeDone(ctx, p, &done, fmt.Errorf("commit: %w", err))
	}
	if done.Version != p.Version || done.PayloadB3 != p.B3().String() {
		return done, distrust("it committed version %d, %s, for version %d, %s", done.Version, done.PayloadB3, p.Version, p.B3())
	}
	return done, nil
}

// maybeDone asks, after a step failed, whether p is a version all the same: an answer may have been lost, or the
// proposal may be gone because it was committed.
func (ap *applier) maybeDone(ctx context.Context, p *record.Payload, done *wire.Committed, cause error) error {
	doc, err := ap.node.Version(ctx, p.Version, false)
	if err != nil || doc.PayloadB3 != p.B3().String() {
		return cause
	}
	*done = wire.Committed{Version: doc.Version, PayloadB3: doc.PayloadB3, CommittedAt: doc.CommittedAt, Hash: doc.Hash}
	return nil
}

// moved tells a refusal that a new look at HEAD may cure: another version came in between, or the proposal went.
func moved(err error) bool {
	p, ok := errors.AsType[*wire.Problem](err)
	if !ok {
		return false
	}
	switch p.Reason {
	case "chain_mismatch", "version_skew", "conflict", "not_found":
		return true
	}
	return p.Status == http.StatusGone
}

// unlessIdentical lets the repeat of an approval pass.
func unlessIdentical(err error) error {
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.Details["identical"] == true {
		return nil
	}
	return err
}
