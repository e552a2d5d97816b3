package tile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"strings"
)

// Format is the format of a tile, named by its usual extension. The zero Format is unknown.
type Format string

// The formats. MVT is the vector tile of Mapbox, MLT that of MapLibre.
const (
	MVT  Format = "mvt"
	MLT  Format = "mlt"
	PNG  Format = "png"
	JPG  Format = "jpg"
	WebP Format = "webp"
	AVIF Format = "avif"
)

// kinds lists the names of each format: extensions and media types in lower case. The first media
// type is the one that is sent.
var kinds = map[Format][]string{
	MVT: {"application/x-protobuf", "mvt", "pbf", "application/vnd.mapbox-vector-tile",
		"application/x-mapbox-vector-tile", "application/protobuf"},
	MLT:  {"application/vnd.maplibre-tile", "mlt", "application/vnd.maplibre-vector-tile"},
	PNG:  {"image/png", "png"},
	JPG:  {"image/jpeg", "jpg", "jpeg", "image/jpg"},
	WebP: {"image/webp", "webp"},
	AVIF: {"image/avif", "avif"},
}

var byName = names()

func names() map[string]Format {
	out := map[string]Format{}
	for f, all := range kinds {
		for _, name := range all {
			out[name] = f
		}
	}
	return out
}

// FormatOf returns the format that an extension or a media type names, in any case and with
// parameters, or "" if it names none.
func FormatOf(name string) Format {
	name, _, _ = strings.Cut(name, ";")
	return byName[strings.TrimPrefix(strings.ToLower(strings.TrimSpace(name)), ".")]
}

// ContentType returns the media type of tiles of the format.
func (f Format) ContentType() string {
	if all := kinds[f]; len(all) > 0 {
		return all[0]
	}
	return "application/octet-stream"
}

// Vector reports whether tiles of the format hold vectors.
func (f Format) Vector() bool { return f == MVT || f == MLT }

// Matches reports whether ext, without its dot, names the format. The empty ext matches every
// format, and the unknown format matches every ext.
func (f Format) Matches(ext string) bool { return f == "" || ext == "" || FormatOf(ext) == f }

// Sniff returns the format that the first bytes of a decoded tile name, or "". Vector tiles of
// MapLibre have no mark.
func Sniff(b []byte) Format {
	switch {
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")):
		return PNG
	case bytes.HasPrefix(b, []byte{0xff, 0xd8, 0xff}):
		return JPG
	case len(b) >= 12 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP":
		return WebP
	case len(b) >= 12 && (string(b[4:12]) == "ftypavif" || string(b[4:12]) == "ftypavis"):
		return AVIF
	case bytes.HasPrefix(b, []byte{0x1a}): // the first field of a vector tile is a layer
		return MVT
	}
	return ""
}

// Guess returns the format of tiles that were declared as one format and whose bytes name another.
// The bytes win, except that a tile of MapLibre may begin like one of Mapbox. Compressed tiles of
// unknown format are vectors, because pictures are not compressed again.
func Guess(declared, sniffed Format, coding Coding) Format {
	switch {
	case sniffed == MVT && declared == MLT:
		return MLT
	case declared == "" && sniffed == "" && coding != None:
		return MVT
	}
	return cmp.Or(sniffed, declared)
}

// Width returns the width of a picture in pixels, or 0 if its first bytes do not have it.
func Width(b []byte) int {
	switch f := Sniff(b); {
	case f == PNG && len(b) >= 24:
		return int(binary.BigEndian.Uint32(b[16:]))
	case f == JPG:
		return widthJPG(b)
	case f == WebP && len(b) >= 30:
		return widthWebP(b)
	case f == AVIF:
		if i := bytes.Index(b, []byte("ispe")); i >= 0 && len(b) >= i+12 {
			return int(binary.BigEndian.Uint32(b[i+8:]))
		}
	}
	return 0
}

// widthJPG finds the frame header of a JPEG.
func widthJPG(b []byte) int {
	for at := 2; at+9 <= len(b) && b[at] == 0xff; {
		mark := b[at+1]
		if mark >= 0xc0 && mark <= 0xcf && mark != 0xc4 && mark != 0xc8 && mark != 0xcc {
			return int(binary.BigEndian.Uint16(b[at+7:]))
		}
		at += 2 + int(binary.BigEndian.Uint16(b[at+2:]))
	}
	return 0
}

// widthWebP reads the first chunk of a WebP of at least 30 bytes.
func widthWebP(b []byte) int {
	switch string(b[12:16]) {
	case "VP8 ":
		return int(binary.LittleEndian.Uint16(b[26:]) & 0x3fff)
	case "VP8L":
		return int(binary.LittleEndian.Uint16(b[21:])&0x3fff) + 1
	case "VP8X":
		return int(binary.LittleEndian.Uint32(b[24:])&0xffffff) + 1
	}
	return 0
}
