package edge

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/fill"
	"ronbox/engines/edge/placed"
	"ronbox/engines/edge/site"
)

// Asset returns the object at a path below /edge/assets/: a pack file, a stored object or, in live
// mode, an object that is fetched now. The path and the query are escaped. Asset waits for a fetch
// until ctx ends, and at most edge.ingress.timeout_secs; the fetch continues after that. It returns
// the errors of errors.go and those of packs.
func (e *Engine) Asset(ctx context.Context, path, query string) (*asset.Object, error) {
	now := e.now().UnixNano()
	if o := e.content.Warm(asset.NameOf(path, query)); o != nil {
		if !e.outdated(o, now) {
			o.At = now
			return o, nil
		}
		o.Close()
	}
	t, err := asset.ParsePath(path, query)
	var o *asset.Object
	switch {
	case err != nil:
		return nil, err
	case t.Pack != "":
		return e.packs.File(t.Pack)
	default:
		o, _, err = e.content.Open(ctx, t)
	}
	if err == nil {
		if o.At = now; e.outdated(o, now) {
			return e.current(ctx, t, o)
		}
		return o, nil
	}
	if t.URL == "" || e.Config().Mode != config.ModeLive || !content.IsMiss(err) {
		return o, err
	}
	within := e.Config().Timeout()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if _, err = e.fills.Get(ctx, t, strings.TrimPrefix(t.URL, "https://"), within); err != nil {
		return nil, err
	}
	if o, _, err = e.content.Open(ctx, t); err == nil {
		o.Filled, o.At = true, e.now().UnixNano()
	}
	return o, err
}

// outdated reports whether the host of an object is to be asked for it again.
func (e *Engine) outdated(o *asset.Object, now int64) bool {
	return !o.Immutable && now >= o.Fresh && e.Config().Mode == config.ModeLive
}

// current returns a stale object after its host was asked for it again. It waits for the host only
// if that demands to be asked, and at most edge.cache.wait: then, or if the host is silent, it
// returns the stale object.
func (e *Engine) current(ctx context.Context, t asset.Target, o *asset.Object) (*asset.Object, error) {
	rule := e.Config().Cache
	wait := time.Duration(0)
	if o.Demand {
		wait = rule.Wait.D()
	}
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	f, err := e.fills.Again(within, t, strings.TrimPrefix(t.URL, "https://"))
	failed, _ := errors.AsType[*asset.FillError](err)
	switch gone := failed != nil && failed.Reason == asset.UpstreamNotFound; {
	case err == nil || gone:
		next, _, missing := e.content.Open(ctx, t)
		switch {
		case missing != nil && gone:
			missing = err // that the host has no such object says more
		case missing != nil: // it was evicted since
			o.Asked = askedStatus(f, gone)
			return o, nil
		}
		o.Close()
		if missing == nil {
			next.At, next.Asked = o.At, askedStatus(f, gone)
		}
		return next, missing
	case errors.Is(err, fill.ErrJust) && (!o.Demand || !rule.Strict || o.At-o.Checked <= int64(rule.Interval)),
		!o.Demand && errors.Is(err, context.DeadlineExceeded):
	default:
		o.Silent = true
		if o.Demand && rule.Strict {
			o.Close()
			return nil, asset.ErrStale
		}
	}
	e.m.stale(1)
	return o, nil
}

// askedStatus returns the status with which a host answered for a stored object.
func askedStatus(f fill.Filled, gone bool) int {
	switch {
	case gone:
		return http.StatusNotFound
	case f.Same:
		return http.StatusNotModified
	}
	return http.StatusOK
}

// Put stores the object of a request and pins it. The object is hashed while it is written. Put
// reads the body until ctx ends. It is idempotent. It returns a *PinsError if the pin would exceed
// a cap, a *SizeError, a *DigestError, ErrType, an error of Body, or one of errors.go.
func (e *Engine) Put(ctx context.Context, r content.PutRequest) (p content.Put, err error) {
	if err = e.mayPut(ctx, &r); err != nil {
		return p, err
	}
	p, changed, err := e.content.Put(ctx, r)
	if err == nil && changed && r.Announce {
		e.announcer.Announce(ctx, p.Digest)
	}
	return p, err
}

// mayPut returns an error if the put cannot succeed. Otherwise it counts the request.
func (e *Engine) mayPut(ctx context.Context, r *content.PutRequest) error {
	if r.Type == "" {
		r.Type = site.Bytes
	}
	most := e.Config().Fill.MaxObjectBytes.Bytes()
	if err := e.content.Ready(); err != nil {
		return err
	}
	switch {
	case e.draining():
		return flow.ErrClosed
	case !site.Allowed(r.Type):
		return asset.ErrType
	case r.Size > most:
		return &asset.SizeError{Max: most}
	}
	if err := e.content.MayPin(ctx, *r); err != nil {
		return err
	}
	return e.fills.Count()
}

// keyPrefix begins the pseudo URL of an object that has no URL.
const keyPrefix = "b3:"

// parseKey returns the key of a stored object from its URL or pseudo URL, for Keep. A URL of a
// placement can only be removed; the placer adds it again if the registry still names the
// placement.
func (e *Engine) parseKey(ctx context.Context, do asset.Action, text string) (key string, err error) {
	if do == asset.Remove && strings.HasPrefix(text, placed.Prefix) {
		return text, nil
	}
	if !strings.HasPrefix(text, keyPrefix) {
		t, _, err := asset.ParseURL(text)
		if err != nil || t.Old == "" {
			return t.URL, err
		}
		return e.content.Spelled(ctx, t)
	}
	if _, err := b3.Parse(text); err != nil {
		return "", &asset.PathError{Path: text, Reason: "must be b3: and 64 lower-case hex digits, or a URL"}
	}
	return text, nil
}

// Keep pins, unpins or removes stored URLs, and objects without a URL by their digests. It returns
// a PinsError, and changes nothing, if a pin would exceed a cap. It waits for the content store
// until ctx ends. Other errors are those of errors.go.
func (e *Engine) Keep(ctx context.Context, do asset.Action, urls []string) (asset.KeepResult, error) {
	var keys []string
	for _, text := range urls {
		key, err := e.parseKey(ctx, do, text)
		if err != nil {
			return asset.KeepResult{}, err
		}
		keys = append(keys, key)
	}
	err := e.fills.Count()
	if err == nil {
		err = e.content.Ready()
	}
	if err != nil {
		return asset.KeepResult{}, err
	}
	return e.keep(ctx, do, keys)
}

// keep is Keep for the keys of rows.
func (e *Engine) keep(ctx context.Context, do asset.Action, keys []string) (asset.KeepResult, error) {
	out, ended, err := e.content.Keep(ctx, do, keys)
	if err == nil {
		e.announcer.Withdraw(ctx, ended)
	}
	return out, err
}

// Keys lists URLs in order. It reads at most 10,000 rows, so a page may have fewer than Limit URLs
// even if more pages follow. next is the After of the following page, or "" after the last page.
func (e *Engine) Keys(ctx context.Context, q content.KeyQuery) (page []content.KeyInfo, next string, err error) {
	return e.content.Keys(ctx, q)
}

// Usage returns how full the content store is. It returns ErrAmnesia in amnesia mode.
func (e *Engine) Usage() (content.Usage, error) { return e.content.Usage() }

// Verify reads every object and every pack. It reports those whose bytes do not match their digest
// and those that the disk does not read. A damaged object that is kept is hashed again before its
// next use. Rows that do not read are always dropped. Verify ends early if ctx ends.
func (e *Engine) Verify(ctx context.Context, o content.VerifyOptions) (content.Verified, error) {
	return e.content.Verify(ctx, o)
}
