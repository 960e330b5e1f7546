// MQTT.js, over TCP or WebSocket, with or without TLS. What it hears and says: see lines.py.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import mqtt from "mqtt";

const place = JSON.parse(process.argv[2]);
const secure = place.authority ? "s" : "";
const [scheme, path] = place.websocket ? [`ws${secure}`, "/mqtt"] : [`mqtt${secure}`, ""];
const read = (file) => (file ? readFileSync(file) : undefined);
const say = (event) => process.stdout.write(JSON.stringify(event) + "\n");

const client = await mqtt.connectAsync(`${scheme}://${place.host}:${place.port}${path}`, {
  clientId: place.client_id,
  protocolVersion: place.version,
  reconnectPeriod: 0,
  ca: read(place.authority),
  cert: read(place.certificate),
  key: read(place.key),
});
client.on("message", (topic, payload, { qos, retain }) =>
  say({ event: "message", topic, payload: payload.toString("base64"), qos, retained: retain }),
);
say({ event: "done" });

for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  if (order.verb === "subscribe") {
    await client.subscribeAsync(order.filter, { qos: order.qos });
  } else {
    const payload = Buffer.from(order.payload, "base64");
    await client.publishAsync(order.topic, payload, { qos: order.qos, retain: order.retained });
  }
  say({ event: "done" });
}
await client.endAsync();
