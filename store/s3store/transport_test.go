package s3store

import "testing"

// The SDK's client keeps what the driver sets: the pings that find a dead connection.
func TestTransportIsTuned(t *testing.T) {
	tuned := httpClient().GetTransport()
	if p := tuned.HTTP2; p == nil || p.SendPingTimeout == 0 || tuned.MaxIdleConnsPerHost < 256 {
		t.Errorf("%+v, %d idle connections", p, tuned.MaxIdleConnsPerHost)
	}
}
