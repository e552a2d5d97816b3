package mbtiles

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"zombiezen.com/go/sqlite"

	"ronbox/engines/edge/tile"
)

// describe checks the schema, checks that an index finds each tile, and reads the metadata.
func (r *Reader) describe(c *sqlite.Conn) (err error) {
	if r.virtual, err = checkSchema(c); err != nil {
		return err
	}
	if err := checkTilePlan(c); err != nil {
		return err
	}
	if err := checkWalkPlan(c, r.countTiles()); err != nil {
		return err
	}
	meta, err := r.readMetadata(c)
	if err != nil {
		return err
	}
	r.Info = Info{
		Name:        meta["name"],
		Description: meta["description"],
		Attribution: meta["attribution"],
		Version:     meta["version"],
		Type:        meta["type"],
		Format:      meta["format"],
		JSON:        meta["json"],
		Bounds:      r.bounds(meta),
	}
	numbers(meta["center"], r.Center[:])
	return r.zooms(c, meta)
}

func (r *Reader) warn(code tile.Code, format string, args ...any) {
	r.findings = append(r.findings, tile.Finding{Code: code, Text: fmt.Sprintf(format, args...), Count: 1})
}

const selectMetadata = `SELECT name, octet_length(value),
	CASE WHEN octet_length(value) <= ? THEN value END FROM metadata WHERE name IN ('name', 'description',
	'attribution', 'version', 'type', 'format', 'minzoom', 'maxzoom', 'bounds', 'center', 'json') LIMIT 100`

// readMetadata reads the metadata for Info. It leaves out values that exceed MaxMetadata together.
func (r *Reader) readMetadata(c *sqlite.Conn) (map[string]string, error) {
	if err := checkMetadataPlan(c); err != nil {
		return nil, err
	}
	meta, left := map[string]string{}, r.MaxMetadata
	query := strings.Replace(selectMetadata, "?", strconv.FormatInt(r.MaxMetadata, 10), 1)
	err := rows(c, query, func(s *sqlite.Stmt) error {
		name, length := s.ColumnText(0), s.ColumnInt64(1)
		if length > left {
			r.warn(tile.CodeMetadata, "metadata: %q has %d bytes and is left out, at most %d together", name, length,
				r.MaxMetadata)
			return nil
		}
		left -= length
		meta[name] = s.ColumnText(2)
		return nil
	})
	return meta, err
}

// zooms takes the zoom levels from the metadata or, if that lacks one or has no whole number, from
// the tiles.
func (r *Reader) zooms(c *sqlite.Conn, meta map[string]string) error {
	for _, end := range []string{"min", "max"} {
		text, given := meta[end+"zoom"]
		level, ok := wholeZoom(text)
		if given && !ok {
			r.warn(tile.CodeZoom, "metadata: %szoom is %.20q, not a zoom level from 0 to %d", end, text, maxZoom)
		}
		if !ok {
			err := rows(c, fmt.Sprintf("SELECT %s(zoom_level) FROM tiles WHERE zoom_level BETWEEN 0 AND %d", end,
				maxZoom), func(s *sqlite.Stmt) error {
				level = uint8(s.ColumnInt(0))
				return nil
			})
			if err != nil {
				return err
			}
		}
		if end == "min" {
			r.MinZoom = level
		}
		r.MaxZoom = level
	}
	if low, high := meta["minzoom"], meta["maxzoom"]; r.MinZoom > r.MaxZoom {
		r.warn(tile.CodeZoom, "metadata: zoom levels %.20q to %.20q", low, high)
		return r.zooms(c, nil)
	}
	return nil
}

// wholeZoom parses a zoom level in any spelling of a whole number.
func wholeZoom(text string) (uint8, bool) {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(v >= 0 && v <= maxZoom) || v != math.Trunc(v) {
		return 0, false
	}
	return uint8(v), true
}

// bounds returns the bounds of the metadata, or zero if they are unknown.
func (r *Reader) bounds(meta map[string]string) (out [4]float64) {
	text, given := meta["bounds"]
	numbers(text, out[:])
	if out = tile.Extent(out); given && out == ([4]float64{}) {
		r.warn(tile.CodeBounds, "metadata: bounds are %.80q, not west, south, east and north", text)
	}
	return out
}

// numbers parses a list of len(into) decimal numbers. It leaves into unchanged if the list differs.
func numbers(list string, into []float64) {
	words, out := strings.Split(list, ","), make([]float64, len(into))
	for i := range out {
		v, err := strconv.ParseFloat(strings.TrimSpace(words[min(i, len(words)-1)]), 64)
		if out[i] = v; err != nil || !(math.Abs(v) <= 360) || len(words) != len(into) {
			return
		}
	}
	copy(into, out)
}
