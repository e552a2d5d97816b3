package index

import (
	"cmp"
	"net/http"
	"strings"

	"ronbox/engines/index/name"
	"ronbox/httpapi"
	indexapi "ronbox/httpapi/wire/index"
)

// Query parameters of the keys of the file.
var (
	namesPrefix = httpapi.Text("prefix", "prefix of the keys")
	namesAfter  = httpapi.Text("after", "next of the page before")
	namesLimit  = httpapi.Number("limit", defaultNames, 1, maxNames, "keys of a page")

	forget = httpapi.Flag("forget", false,
		"1: remove the whole row, even if it is damaged or a tombstone, so that names of peers show again")
)

// getNames serves GET /index/names.
func (h handlers) getNames(c *httpapi.Request) error {
	prefix, err := namesPrefix.Of(c)
	after, errAfter := namesAfter.Of(c)
	limit, errLimit := namesLimit.Of(c)
	if err := cmp.Or(err, errAfter, errLimit); err != nil {
		return err
	}
	page, err := h.idx.Names(c.Context(), prefix, after, int(limit))
	if err != nil {
		return err
	}
	out := indexapi.NameList{Names: make([]indexapi.NameRow, len(page.Names)), Next: page.Next}
	for i := range page.Names {
		out.Names[i] = nameRow(page.Names[i])
	}
	for _, key := range page.Damaged {
		out.Damaged = append(out.Damaged, strings.ToValidUTF8(key, "\uFFFD"))
	}
	return c.RespondCached(http.StatusOK, httpapi.CacheAsk, out)
}

// getName serves GET /index/names/:key.
func (h handlers) getName(c *httpapi.Request) error {
	key, err := keyParam(c)
	if err != nil {
		return err
	}
	n, err := h.idx.Name(c.Context(), key)
	if err != nil {
		return err
	}
	return c.RespondCached(http.StatusOK, httpapi.CacheAsk, nameRow(n))
}

// putName serves PUT /index/names/:key.
func (h handlers) putName(c *httpapi.Request) error {
	key, err := keyParam(c)
	if err != nil {
		return err
	}
	var in indexapi.NamePut
	if err := c.Decode(&in); err != nil {
		return err
	}
	manifest, err := name.ParseCID(in.Manifest)
	if err != nil {
		return httpapi.BadBody("manifest", `must be "b3:" and 64 lower-case hex digits`)
	}
	n, created, err := h.idx.PutName(c.Context(), c.Actor(), key, manifest, c.CorrID())
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return c.Respond(status, nameRow(n))
}

// deleteName serves DELETE /index/names/:key.
func (h handlers) deleteName(c *httpapi.Request) error {
	key, err := keyParam(c)
	if err != nil {
		return err
	}
	whole, err := forget.Of(c)
	if err != nil {
		return err
	}
	remove := h.idx.DeleteName
	if whole {
		remove = h.idx.ForgetName
	}
	if err := remove(c.Context(), c.Actor(), key, c.CorrID()); err != nil {
		return err
	}
	return c.Empty()
}

func nameRow(n name.Named) indexapi.NameRow {
	return indexapi.NameRow{Key: n.Key.String(), Manifest: n.Manifest.String(), Seq: n.Seq, UpdatedMS: n.UpdatedMS}
}
