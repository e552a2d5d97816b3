package content

import (
	"context"
	"errors"
	"strings"
	"time"

	"ronbox/engines/edge/tables"
	"ronbox/store"
)

const keysWalk = 10_000 // rows that are read for one page of Keys

// KeyQuery selects URLs. Each field may be zero, except Limit.
type KeyQuery struct {
	Prefix string // of the URLs
	After  string // the last URL of the previous page
	Limit  int    // URLs of one page, 1 to MaxKeys
	Pinned bool   // only pinned URLs
}

// KeyInfo describes a URL with a stored object, or a pinned URL.
type KeyInfo struct {
	tables.Stored           // without a digest if the object of a pinned URL was lost
	Pinned        bool      // the URL is not evicted
	Fetched       time.Time // zero if an older release stored it
	Used          time.Time // the last use of the object, to 10 minutes; zero if its file is missing
}

// Keys lists URLs in order. It reads at most 10,000 rows, so a page may have fewer than Limit URLs
// even if more pages follow. next is the After of the following page, or "" after the last page.
func (s *Store) Keys(ctx context.Context, q KeyQuery) (page []KeyInfo, next string, err error) {
	page, next, err = s.readKeys(ctx, q)
	if errors.Is(err, store.ErrCorrupt) && s.repairSoon(ctx) == nil {
		page, next, err = s.readKeys(ctx, q)
	}
	for i := range page {
		if !page[i].Digest.IsZero() {
			page[i].Used = s.d.Dir.Used(page[i].Digest)
		}
	}
	return page, next, err
}

func (s *Store) readKeys(ctx context.Context, q KeyQuery) (page []KeyInfo, next string, err error) {
	from := tables.URLKey{Head: q.Prefix[:min(len(q.Prefix), tables.KeyHead)]}
	if q.After != "" && q.After >= q.Prefix {
		from = tables.KeyOf(q.After)
	}
	err = s.d.Store.View(ctx, func(r store.Reader) error {
		seen, last := 0, ""
		for k, row := range tables.Keys.From(r, from) {
			url := row.URL(k)
			switch {
			case url == q.After:
				continue
			case !strings.HasPrefix(k.Head, q.Prefix[:min(len(q.Prefix), tables.KeyHead)]):
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
			info := KeyInfo{Stored: tables.Stored{URL: url}, Pinned: row.Pinned}
			if row.Fetched != 0 {
				info.Fetched = time.Unix(0, row.Fetched)
			}
			if stored, known := tables.Paths.Get(r, k.Hash); known {
				info.Stored = stored
			}
			page = append(page, info)
		}
		return nil
	})
	return page, next, err
}
