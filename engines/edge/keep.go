package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/store"
)

const (
	keysWalk = 10_000 // rows that are read for one page of Keys
	// pinShare is the share that may be pinned: max_bytes / pinShare unless edge.cas.max_pinned is
	// set, and max_urls / pinShare.
	pinShare = 2
)

// pinCaps returns how many bytes and URLs may be pinned.
func (c CASConfig) pinCaps() (bytes, urls int64) {
	bytes = c.MaxPinned.Bytes()
	if bytes == 0 {
		bytes = c.MaxBytes.Bytes() / pinShare
	}
	return bytes, int64(c.MaxURLs) / pinShare
}

// Keep pins, unpins or removes stored URLs, and objects without a URL by their digests. It returns
// a PinsError, and changes nothing, if a pin would exceed a cap. It waits for the content store
// until ctx ends. Other errors are those of errors.go.
func (e *Engine) Keep(ctx context.Context, do asset.Action, urls []string) (asset.KeepResult, error) {
	k := &keepJob{do: do}
	for _, text := range urls {
		url, err := parseKey(do, text)
		if err != nil {
			return asset.KeepResult{}, err
		}
		k.urls = append(k.urls, url)
	}
	err := e.count()
	switch {
	case err != nil:
	case e.d.Amnesia:
		err = asset.ErrAmnesia
	case !e.opened.Load():
		err = asset.ErrStore
	}
	if err != nil {
		return asset.KeepResult{}, err
	}
	lost := e.withoutFile(k)
	out, err := e.keepSoon(ctx, k)
	out.Missing = append(out.Missing, lost...)
	return out, err
}

// withoutFile removes the digests to pin whose file is missing, as after a restore, and returns
// them. Such an object must be put again, whereas the object of a URL can be fetched again.
func (e *Engine) withoutFile(k *keepJob) (lost []string) {
	if k.do != asset.Pin {
		return nil
	}
	k.urls = slices.DeleteFunc(k.urls, func(key string) bool {
		d, err := b3.Parse(key)
		gone := err == nil && e.cas.Used(d).IsZero()
		if gone {
			lost = append(lost, key)
		}
		return gone
	})
	return lost
}

// keepSoon sends a change of pins to the CAS writer and waits for it.
func (e *Engine) keepSoon(ctx context.Context, k *keepJob) (asset.KeepResult, error) {
	slices.Sort(k.urls)
	k.urls = slices.Compact(k.urls)
	if err := e.write(ctx, &writeJob{keep: k}); err != nil {
		return asset.KeepResult{}, err
	}
	if k.do == asset.Remove && len(k.out.Changed) > 0 {
		n := fmt.Sprint(len(k.out.Changed), " URLs")
		e.events.Publish(asset.Event{
			Kind:   "cas_remove",
			Of:     asset.Shown(k.out.Changed[0]),
			Result: n,
			Size:   k.out.Freed,
		})
	}
	if err := e.withdraw(ctx, k.ended); err != nil {
		e.log.Warn("withdraw", "objects", len(k.ended), "reason", err.Error(), "next",
			"their records expire within a day")
	}
	return k.out, nil
}

// keepJob is a call of Keep on its way to the writer. The caller may read out and ended after the
// job has succeeded.
type keepJob struct {
	do    asset.Action
	urls  []string // sorted, distinct
	out   asset.KeepResult
	ended []b3.Digest // objects that are no longer announced
}

// keep processes a job. It is called by the task cas_writer.
func (e *Engine) keep(ctx context.Context, k *keepJob) error {
	has, _ := e.room.held()
	c := keepCmd{Do: k.do, URLs: k.urls, Pinned: has.pinned, Pins: has.pins}
	c.MaxPinned, c.MaxPins = e.Config().CAS.pinCaps()
	done, err := store.Commit(ctx, e.d.Store, store.Work, c)
	if err != nil {
		return err
	}
	e.applyChange(ctx, done.change)
	k.out, k.ended = done.KeepResult, done.ended
	k.out.Freed = -done.tally.bytes
	return nil
}

// keepCmd pins, unpins or removes URLs. Only the writer sends it, so its counts match the rows.
type keepCmd struct {
	Do                 asset.Action
	URLs               []string // distinct
	Pinned, Pins       int64    // bytes and URLs that are pinned
	MaxPinned, MaxPins int64    // caps
}

// keepDone describes the effect of a keepCmd.
type keepDone struct {
	asset.KeepResult
	change
	ended []b3.Digest // objects that are no longer announced
}

// Kind returns a name that is stored in the file.
func (keepCmd) Kind() string { return "edge.keep/1" }

// Apply returns a PinsError if a pin would exceed a cap.
func (c keepCmd) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (done keepDone, err error) {
	var gone []Stored
	for _, url := range c.URLs {
		row, listed := keys.Get(r, keyOf(url))
		path, stored := paths.Get(r, pathKey(url))
		if !listed && !stored || c.Do == asset.Pin && !stored {
			done.Missing = append(done.Missing, url)
			continue
		}
		done.Changed = append(done.Changed, url)
		if !listed {
			row = keyRow{Size: path.Size}
		}
		if d, err := b3.Parse(url); err == nil && c.Do != asset.Pin {
			done.endAnnounced(r, w, d)
		}
		next := row
		next.Pinned = c.Do == asset.Pin
		switch {
		case c.Do == asset.Remove:
			row.drop(w, url, &done.change)
			gone = append(gone, path)
		case !stored: // without a pin, the row has nothing to describe
			row.drop(w, url, &done.change)
		case next.Pinned != row.Pinned:
			next.put(w, url, row, &done.change)
		}
	}
	full := &asset.PinsError{
		Bytes: c.Pinned + done.pinned, URLs: c.Pins + done.pins, MaxBytes: c.MaxPinned, MaxPinned: c.MaxPins,
	}
	if done.pins > 0 && (full.Bytes > c.MaxPinned || full.URLs > c.MaxPins) {
		return done, full
	}
	done.removePaths(r, w, gone)
	return done, nil
}

// endAnnounced removes an object from those that are announced.
func (done *keepDone) endAnnounced(r store.Reader, w *store.Writes, d b3.Digest) {
	if _, known := announced.Get(r, d); known {
		announced.Delete(w, d)
		done.ended = append(done.ended, d)
	}
}

// pinFilled pins a URL that was filled. If the pin is refused, why describes the reason.
func (e *Engine) pinFilled(ctx context.Context, url string) (pinned bool, why string, err error) {
	if pinned, err = e.isPinned(ctx, url); pinned || err != nil {
		return pinned, "", err
	}
	done, err := e.keepSoon(ctx, &keepJob{do: asset.Pin, urls: []string{url}})
	full, over := errors.AsType[*asset.PinsError](err)
	switch {
	case over:
		return false, full.Error(), nil
	case err == nil && len(done.Missing) > 0:
		return false, "it was evicted before it could be pinned", nil
	}
	return err == nil, "", err
}

func (e *Engine) isPinned(ctx context.Context, url string) (bool, error) {
	row, err := find(ctx, e, keys, keyOf(url))
	return row.Pinned, ignore(err, asset.ErrNotFound)
}

// KeyQuery selects URLs. Each field may be zero, except Limit.
type KeyQuery struct {
	Prefix string // of the URLs
	After  string // the last URL of the previous page
	Limit  int    // URLs of one page, 1 to MaxKeys
	Pinned bool   // only pinned URLs
}

// KeyInfo describes a URL with a stored object, or a pinned URL.
type KeyInfo struct {
	Stored            // without a digest if the object of a pinned URL was lost
	Pinned  bool      // the URL is not evicted
	Fetched time.Time // zero if an older release stored it
	Used    time.Time // the last use of the object, to 10 minutes; zero if its file is missing
}

// Keys lists URLs in order. It reads at most 10,000 rows, so a page may have fewer than Limit URLs
// even if more pages follow. next is the After of the following page, or "" after the last page.
func (e *Engine) Keys(ctx context.Context, q KeyQuery) (page []KeyInfo, next string, err error) {
	page, next, err = e.readKeys(ctx, q)
	if errors.Is(err, store.ErrCorrupt) && e.repairSoon(ctx, repairWithin) == nil {
		page, next, err = e.readKeys(ctx, q)
	}
	for i := range page {
		if !page[i].Digest.IsZero() {
			page[i].Used = e.cas.Used(page[i].Digest)
		}
	}
	return page, next, err
}

func (e *Engine) readKeys(ctx context.Context, q KeyQuery) (page []KeyInfo, next string, err error) {
	from := urlKey{head: q.Prefix[:min(len(q.Prefix), keyHead)]}
	if q.After != "" && q.After >= q.Prefix {
		from = keyOf(q.After)
	}
	err = e.d.Store.View(ctx, func(r store.Reader) error {
		seen, last := 0, ""
		for k, row := range keys.From(r, from) {
			url := row.url(k)
			switch {
			case url == q.After:
				continue
			case !strings.HasPrefix(k.head, q.Prefix[:min(len(q.Prefix), keyHead)]):
				return nil
			case len(page) == q.Limit, seen == keysWalk:
				next = last
				return nil
			}
			seen++
			last = url
			if !strings.HasPrefix(url, q.Prefix) || q.Pinned && !row.Pinned {
				continue
			}
			info := KeyInfo{Stored: Stored{URL: url}, Pinned: row.Pinned}
			if row.Fetched != 0 {
				info.Fetched = time.Unix(0, row.Fetched)
			}
			if stored, known := paths.Get(r, k.hash); known {
				info.Stored = stored
			}
			page = append(page, info)
		}
		return nil
	})
	return page, next, err
}
