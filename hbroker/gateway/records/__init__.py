"""What gateways publish about sessions, and how these payloads are authenticated.

    session_records        the session records of all gateways
    gateways               the gateways that are present, or absent
    client_id_claims       claims of client ids, and the stamps that order them
    wills                  when a will is published, and wills as part of a record
    record_authentication  payloads: JSON, authenticated with the join key

Each module imports only modules below it in this list. Of the gateway they import `native_api` and
`reason_codes`.
"""
