package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/wire"
	registryapi "ronbox/httpapi/wire/registry"
)

const (
	maxMoved = 5 // times that HEAD may move during one file

	maxBody    = 1 << 20       // of one request
	maxPayload = maxBody - 256 // the other members of a propose request
)

// applier turns desired states into versions. It belongs to one goroutine.
type applier struct {
	cli.Repeater
	node registryNode
	keys []signerKey
	now  func() time.Time
	show func(b record.Base, put []record.Item, remove []string)

	force  bool   // sign a second payload of a version
	expiry string // of the payloads; "" for none

	base record.Base // the last HEAD read and checked; version 0: none
}

// apply makes desired the state of HEAD, even if HEAD moves meanwhile.
func (ap *applier) apply(ctx context.Context, desired record.Items) (applied, error) {
	for range maxMoved {
		head, err := ap.refresh(ctx)
		if err != nil {
			return applied{}, err
		}
		put, remove := record.Diff(ap.base.Items, desired)
		if len(put) == 0 && len(remove) == 0 {
			return applied{
				Committed: registryapi.Committed{
					Version: head.Version, PayloadB3: head.PayloadB3,
					CommittedAt: head.CommittedAt, Hash: head.Hash,
				},
			}, nil
		}
		ap.show(ap.base, put, remove)
		p, items, err := complete(ap.base,
			record.Draft{Version: ap.base.Version + 1, Expiry: ap.expiry, Put: put, Remove: remove}, ap.now())
		if err != nil {
			return applied{}, err
		}
		done, err := ap.publish(ctx, p)
		if err == nil {
			ap.base = record.Base{
				Origin: p.Origin, Version: p.Version, PayloadB3: p.B3(), Items: items,
				Signers: ap.base.Signers,
			}
			return applied{Committed: done, Put: len(put), Remove: len(remove), Changed: true}, nil
		}
		if !headMoved(err) {
			return applied{}, err
		}
		ap.Retrying("HEAD moved meanwhile (%v): looking again", err)
	}
	return applied{}, cli.Fail(cli.ExitBusy, "head_moved", "check for other writers, then try again",
		"HEAD moved %d times while this state was being signed", maxMoved)
}

// refresh reads HEAD and, if it has moved, its state, which must fit the hashes.
func (ap *applier) refresh(ctx context.Context) (head registryapi.Head, err error) {
	err = ap.Repeat(ctx, "head", func() (err error) { head, err = begun(ctx, ap.node); return err })
	if err != nil {
		return head, err
	}
	if known := ap.base; head.Version == known.Version && head.PayloadB3 == known.PayloadB3 {
		return head, nil
	} else if head.Version <= known.Version {
		return head, inconsistent("HEAD is version %d, %s, after it was version %d, %s", head.Version, head.PayloadB3,
			known.Version, known.PayloadB3)
	}
	var base record.Base
	err = ap.Repeat(ctx, "read HEAD", func() (err error) { base, err = fetchBase(ctx, ap.node, head); return err })
	if err != nil {
		return head, fmt.Errorf("read version %d: %w", head.Version, err)
	}
	if err := checkKeys(ap.keys, base.Signers); err != nil {
		return head, err
	}
	ap.base = base
	return head, nil
}

// publish runs all steps for p. Each may be repeated; the node makes one version. After a failed
// step p may have become a version anyway: an answer was lost, or the proposal is gone because it
// was committed.
func (ap *applier) publish(ctx context.Context, p *record.Payload) (done registryapi.Committed, err error) {
	done, err = ap.commit(ctx, p)
	if err != nil {
		doc, errDoc := ap.node.Version(ctx, p.Version, false)
		if errDoc != nil || doc.PayloadB3 != p.B3() {
			return done, err
		}
		return registryapi.Committed{
			Version: doc.Version, PayloadB3: doc.PayloadB3, CommittedAt: doc.CommittedAt,
			Hash: doc.Hash,
		}, nil
	}
	if done.Version != p.Version || done.PayloadB3 != p.B3() {
		return done, inconsistent("it committed version %d, %s, for version %d, %s", done.Version, done.PayloadB3,
			p.Version, p.B3())
	}
	return done, nil
}

// commit proposes p, approves it with each key, and commits it.
func (ap *applier) commit(ctx context.Context, p *record.Payload) (done registryapi.Committed, err error) {
	var prop registryapi.Proposed
	err = ap.Repeat(ctx, "propose", func() (err error) {
		prop, err = ap.node.Propose(ctx, p.Bytes(), p.B3().String())
		return err
	})
	if err != nil {
		return done, fmt.Errorf("propose: %w", err)
	}
	if err := noteSignings(ap.keys, p, ap.force); err != nil {
		return done, err
	}
	for _, k := range ap.keys {
		signed := k.Sign(p.B3(), ap.now())
		err = ap.Repeat(ctx, "approve", func() error {
			_, err := ap.node.Approve(ctx, prop.ID, signed)
			return ignoreIdentical(err)
		})
		if err != nil {
			return done, fmt.Errorf("approve as %s: %w", k.SignerID, err)
		}
	}
	err = ap.Repeat(ctx, "commit", func() (err error) {
		done, _, err = ap.node.Commit(ctx, prop.ID)
		return err
	})
	if err != nil {
		err = fmt.Errorf("commit: %w", err)
	}
	return done, err
}

// headMoved reports whether another version was committed meanwhile or the proposal is gone.
// Reading HEAD again may help.
func headMoved(err error) bool {
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

// ignoreIdentical returns nil for a repeated approval, else err.
func ignoreIdentical(err error) error {
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.Details["identical"] == true {
		return nil
	}
	return err
}

// checkKeys checks, before anything is sent, that the keys can reach the threshold.
func checkKeys(keys []signerKey, set *record.SignerSet) error {
	for _, k := range keys {
		s, known := set.Find(k.SignerID)
		if err := k.checkSigner(s, known); err != nil {
			return err
		}
	}
	if len(keys) < set.Threshold {
		return cli.Fail(cli.ExitDenied, "quorum", "add --key-file for more signers, or use propose, approve and commit",
			"--key-file names %d of the signers, and %d must approve", len(keys), set.Threshold)
	}
	return nil
}
