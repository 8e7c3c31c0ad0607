// Package see tests what people and Prometheus see of Fencepost, with real programs: make see. In a
// real Chromium the page of "fencepost serve" must show a failover, and axe-core must find nothing.
// A real Prometheus scrapes a run with a failover, and each query of the dashboard must return data.
// Another run has the situation of each alert: it must fire there and nowhere else. Promtool tests the
// alerts with their real times.
package see
