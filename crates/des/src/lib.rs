//! A discrete-event engine that knows no domain: event queue, random streams, shared resources, statistics.
