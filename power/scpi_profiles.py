"""The models of instruments whose SCPI queries are known, each from its manual."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The commands of a model that return watts; ``{channel}`` stands for its input or output.

    ``identity`` is a pattern in its answer to ``*IDN?``. ``set_up`` never changes a range or an
    output. None was tested on such an instrument.
    """

    identity: str
    query: str
    set_up: tuple[str, ...] = ()
    error_query: str = "SYST:ERR?"


PROFILES = {
    # IM WT310E-17EN, Communication Interface User's Manual: groups NUMeric and STATus.
    # The set-up selects what is sent, not what is measured or displayed. It stays afterwards.
    # A WT310 answers *IDN? with YOKOGAWA,WT310,SERIAL,F1.03. Those of WT310E, WT332E and WT333E
    # are not published: taken to have the model there, with or without further letters or options.
    "yokogawa_wt300": Profile(
        identity=r"YOKOGAWA,WT3(10|30|32|33)(?!\d)",
        set_up=(":NUMERIC:FORMAT ASCII", ":NUMERIC:NORMAL:ITEM1 P,{channel}"),
        query=":NUMERIC:NORMAL:VALUE? 1",
        error_query=":STATUS:ERROR?",
    ),
    # N6705C User's Guide, page 217. Only modules that measure voltage and current at once have it.
    "keysight_n6700": Profile(
        identity=r"(Agilent|Keysight) Technologies,N670[0125]", query="MEAS:POW? (@{channel})"
    ),
    # DP800 Programming Guide, page 2-35.
    "rigol_dp800": Profile(identity=r"RIGOL TECHNOLOGIES,DP8\d\d", query=":MEAS:POWE? CH{channel}"),
}
