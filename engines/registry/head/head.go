package head

import "ronbox/appliance/b3"

// Head is HEAD as a reader sees it.
type Head struct {
	Version        uint64    `json:"version" doc:"0: no genesis yet"`
	PayloadB3      b3.Digest `json:"payload_b3" format:"b3"`
	CommittedAt    string    `json:"committed_at" format:"time?"`
	Hash           b3.Digest `json:"hash" format:"b3"`
	Epoch          uint64    `json:"epoch"`
	Expiry         string    `json:"expiry,omitzero" format:"time"`
	MinVersion     uint64    `json:"min_version"`
	CheckpointSize uint64    `json:"checkpoint_size"`
	Incarnation    string    `json:"incarnation"`
}
